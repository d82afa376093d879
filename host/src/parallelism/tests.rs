//! The rules one by one, the whole space against a recount, and the notation.

use super::*;

fn read(text: &str) -> Result<AtomicParallelism, IllegalPoint> {
    text.parse()
}

/// `text` is refused with `error`, whose message is `message`.
#[track_caller]
fn check_refused(text: &str, error: IllegalPoint, message: &str) {
    assert_eq!(error.to_string(), message);
    assert_eq!(read(text), Err(error), "{text}");
}

#[test]
fn rule_1_a_nonzero_needs_an_element_of_b() {
    check_refused(
        "{<1/4 nnz, 2 col>, 4}",
        IllegalPoint::NonzeroShared { threads: 4 },
        "1/4 nnz: threads cannot share a nonzero, which is multiplied by at least one element of B; take 1 nnz or \
         more, or share a row",
    );
    check_refused(
        "{<8 nnz, 1/2 col>, 1}",
        IllegalPoint::ColumnSharedByNonzeros { nonzeros: 8, threads: 2 },
        "8 nnz, 1/2 col: threads cannot share the column of a nonzero, which is multiplied by at least one element \
         of B; take 1 col or more, or rows instead of nonzeros",
    );
    assert_eq!(read("{<1/4 nnz, 1/2 col>, 1}"), Err(IllegalPoint::NonzeroShared { threads: 4 }));
}

#[test]
fn rule_2_a_parallel_reduction_writes_one_row() {
    check_refused(
        "{<1/4 row, 2 col>, 8}",
        IllegalPoint::ReductionSpansRows { reduction: 8, threads: 4 },
        "a reduction of 8 threads spans rows: it has one thread that writes, to one row, but only 4 threads share a \
         row; reduce at most 4, or let 8 threads or more share a row",
    );
    check_refused(
        "{<2 row, 1 col>, 2}",
        IllegalPoint::ReductionSpansRows { reduction: 2, threads: 1 },
        "a reduction of 2 threads spans rows: it has one thread that writes, to one row, but each thread has rows of \
         its own; reduce at most 1, or let 2 threads or more share a row",
    );
    let spans = IllegalPoint::ReductionSpansRows { reduction: 8, threads: 4 };
    assert_eq!(read("{<2 row, 1/4 col>, 8}"), Err(spans));
    for legal in ["{<1/32 row, 1 col>, 4}", "{<1/32 row, 1 col>, 8}", "{<2 row, 1/4 col>, 4}"] {
        assert_eq!(read(legal).unwrap().to_string(), legal, "Table 1 has r < g");
    }
}

#[test]
fn rule_3_one_of_the_pair_is_shared() {
    check_refused(
        "{<1/8 row, 1/2 col>, 2}",
        IllegalPoint::RowAndColumnShared { row_threads: 8, column_threads: 2 },
        "1/8 row, 1/2 col: resource parallelism multiplies one element of the pair only; share the row or the column \
         and take the other whole",
    );
}

#[test]
fn reductions_are_groups_of_a_warp() {
    check_refused(
        "{<1 nnz, 1 col>, 64}",
        IllegalPoint::Reduction { reduction: 64 },
        "a reduction of 64 threads: threads are synchronized in groups of 2, 4, 8, 16 or 32, or not at all; take one \
         of these, or 1",
    );
    for reduction in [0, 3, 5, 31, 33, u32::MAX] {
        let point = AtomicParallelism::new(MinimalData::Nnz(Share::Whole(1)), Share::Whole(1), reduction);
        assert_eq!(point, Err(IllegalPoint::Reduction { reduction }));
    }
}

#[test]
fn bounds_of_the_library_are_named_as_such() {
    check_refused(
        "{<64 nnz, 1 col>, 1}",
        IllegalPoint::NoKernel { share: Share::Whole(64), unit: "nnz" },
        "there is no kernel for 64 nnz: it is legal in the paper, but this library has 1, 2, 4, 8, 16 and 32 nnz only; \
         take one of these",
    );
    check_refused(
        "{<1/3 row, 1 col>, 1}",
        IllegalPoint::NoKernel { share: Share::Part(3), unit: "row" },
        "there is no kernel for 1/3 row: it is legal in the paper, but this library has 1/32, 1/16, 1/8, 1/4, 1/2, 1, \
         2, 4, 8, 16 and 32 row only; take one of these",
    );
    check_refused(
        "{<1 row, 8 col>, 1}",
        IllegalPoint::NoKernel { share: Share::Whole(8), unit: "col" },
        "there is no kernel for 8 col: it is legal in the paper, but this library has 1/32, 1/16, 1/8, 1/4, 1/2, 1, 2 \
         and 4 col only; take one of these",
    );
    let sixty_four = IllegalPoint::NoKernel { share: Share::Part(64), unit: "col" };
    assert_eq!(read("{<1 row, 1/64 col>, 32}"), Err(sixty_four));
    let spans = IllegalPoint::ReductionSpansRows { reduction: 4, threads: 3 };
    assert_eq!(read("{<1/3 row, 3 col>, 4}"), Err(spans), "the paper's rules come first");
}

#[test]
fn a_share_is_a_part_or_a_multiple() {
    check_refused(
        "{<1/1 row, 1 col>, 1}",
        IllegalPoint::NoShare { share: Share::Part(1), unit: "row" },
        "1/1 row is no share: a thread takes g, for g of 1 or more, or 1/g, for g of 2 or more; write 1 row for a \
         single one",
    );
    assert_eq!(
        read("{<0 nnz, 1 col>, 1}"),
        Err(IllegalPoint::NoShare { share: Share::Whole(0), unit: "nnz" })
    );
    assert_eq!(
        read("{<1 nnz, 1/0 col>, 1}"),
        Err(IllegalPoint::NoShare { share: Share::Part(0), unit: "col" })
    );
}

/// Whether `{<x nnz|row, y col>, r}` is legal, each rule a predicate of its own. A share is `(part, number)`.
fn is_legal(nnz: bool, x: (bool, u32), y: (bool, u32), r: u32) -> bool {
    let shares_exist = [x, y].iter().all(|&(part, number)| number > u32::from(part));
    let rule_1 = !(nnz && (x.0 || y.0));
    let rule_3 = nnz || !(x.0 && y.0);
    let groups = r.is_power_of_two() && r <= 32;
    let sharing = [x, y].iter().filter(|share| share.0).map(|share| share.1).product::<u32>();
    let rule_2 = nnz || r <= sharing;
    let kernels = [x, y].iter().all(|share| share.1.is_power_of_two() && share.1 <= 32) && (y.0 || y.1 <= 4);
    shares_exist && rule_1 && rule_2 && rule_3 && groups && kernels
}

/// Every legal point by `is_legal`, of numbers up to 70; the constructor agrees on each, legal or not.
fn recount() -> Vec<AtomicParallelism> {
    let numbers = || [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 17, 24, 31, 32, 33, 48, 64, 70].into_iter();
    let shares = || numbers().flat_map(|number| [(true, number), (false, number)]);
    let share = |(part, number)| if part { Share::Part(number) } else { Share::Whole(number) };
    let mut points = Vec::new();
    for (nnz, x, y) in [true, false]
        .into_iter()
        .flat_map(|nnz| shares().flat_map(move |x| shares().map(move |y| (nnz, x, y))))
    {
        let data = if nnz { MinimalData::Nnz(share(x)) } else { MinimalData::Row(share(x)) };
        for r in numbers() {
            let point = AtomicParallelism::new(data, share(y), r);
            assert_eq!(point.is_ok(), is_legal(nnz, x, y, r), "{data}, {} col, {r}", share(y));
            points.extend(point);
        }
    }
    points.sort();
    points
}

#[test]
fn all_points_are_listed_once_in_order() {
    let points: Vec<_> = AtomicParallelism::all(&Bounds::default()).collect();
    assert!(points.is_sorted_by(|a, b| a < b), "ascending, so without duplicates");
    assert_eq!(points, recount());
    assert_eq!(points.len(), 306);
    let of = |family| points.iter().filter(|point| point.family() == family).count();
    // g in 6, c in 3, r = 1; x in 6, c in 3; for each of 20 (g, r ≤ g): c in 3 or x in 6; g in 6, c in 3, r in 5.
    assert_eq!(Family::ALL.map(of), [6 * 3, 6 * 3, 20 * (3 + 6), 6 * 3 * 5]);
}

#[test]
fn bounds_leave_out_what_exceeds_them() {
    let all = recount();
    for (most_nnz, most_rows, most_threads_per_row, most_cols, most_reduction) in [
        (32, 32, 32, 4, 32),
        (100, 100, 100, 100, 100),
        (8, 3, 17, 2, 16),
        (1, 1, 1, 1, 1),
        (0, 4, 4, 4, 0),
        (0, 0, 8, 4, 8),
    ] {
        let bounds = Bounds { most_nnz, most_rows, most_threads_per_row, most_cols, most_reduction };
        let want: Vec<_> = all
            .iter()
            .copied()
            .filter(|point| {
                let x_fits = match point.data() {
                    MinimalData::Nnz(x) => x.data() <= most_nnz,
                    MinimalData::Row(Share::Whole(x)) => x <= most_rows,
                    MinimalData::Row(Share::Part(_)) => true,
                };
                let y_fits =
                    matches!(point.cols(), Share::Part(_)) || point.columns_per_thread() <= most_cols;
                let threads_fit = point.threads_per_row().is_none_or(|g| g <= most_threads_per_row.max(1));
                x_fits && y_fits && threads_fit && point.reduction() <= most_reduction
            })
            .collect();
        assert_eq!(AtomicParallelism::all(&bounds).collect::<Vec<_>>(), want, "{bounds:?}");
    }
}

#[test]
fn notation_round_trips() {
    for point in AtomicParallelism::all(&Bounds::default()) {
        let text = point.to_string();
        assert_eq!(read(&text), Ok(point));
        assert_eq!(read(&text.replace(' ', "")), Ok(point));
        let mut spaced = text.clone();
        for sign in ["{", "<", "/", ",", ">", "}", "nnz", "row", "col"] {
            spaced = spaced.replace(sign, &format!("  {sign}\t"));
        }
        assert_eq!(read(&spaced), Ok(point), "{spaced}");
        assert_eq!(serde_json::to_string(&point).unwrap(), format!("\"{text}\""));
    }
    assert_eq!(format!("{:>24}|", read("{<1nnz,4col>,32}").unwrap()), "    {<1 nnz, 4 col>, 32}|");
}

#[test]
fn text_that_is_no_point_is_shown() {
    check_refused(
        "1/4 row",
        IllegalPoint::Syntax { text: "1/4 row".to_owned() },
        "\"1/4 row\" is no point; write {<x nnz, y col>, r} or {<x row, y col>, r} with x and y as 1/g or g and \
         numbers below 2^32, as in {<1/4 row, 2 col>, 4}",
    );
    for text in [
        "",
        "{}",
        "{<>,}",
        "<1 nnz, 1 col>, 1",
        "{<1 nnz, 1 col>, 1",
        "{<1 nnz, 1 col>, 1}}",
        "{<1 nnz, 1 col>}",
        "{<1 nnz, 1 col> 1}",
        "{<1 nnz, 1 col>, }",
        "{<1 nnz, 1 col>, r}",
        "{<1 nnz, 1 col>, 1, 1}",
        "{<1 nnz>, 1}",
        "{<1, 1 col>, 1}",
        "{<nnz, 1 col>, 1}",
        "{<1 nnz, 1 row>, 1}",
        "{<1 col, 1 nnz>, 1}",
        "{<1 NNZ, 1 col>, 1}",
        "{<1 nnz, 1 col, 1 col>, 1}",
        "{<2/4 row, 1 col>, 1}",
        "{<1/ row, 1 col>, 1}",
        "{</4 row, 1 col>, 1}",
        "{<1/2/2 row, 1 col>, 1}",
        "{<1 6 row, 1 col>, 1}",
        "{<+1 row, 1 col>, 1}",
        "{<-1 row, 1 col>, 1}",
        "{<1.0 row, 1 col>, 1}",
        "{<4294967296 row, 1 col>, 1}",
    ] {
        assert_eq!(read(text), Err(IllegalPoint::Syntax { text: text.to_owned() }));
    }
}

#[test]
fn helpers_read_the_point() {
    // nonzeros, rows, threads of a row, columns, family
    for (text, want) in [
        ("{<8 nnz, 1 col>, 1}", (Some(8), None, None, 1, Family::NnzSerial)),
        ("{<1 nnz, 4 col>, 32}", (Some(1), None, None, 4, Family::NnzGroup)),
        ("{<16 row, 2 col>, 1}", (None, Some(16), Some(1), 2, Family::RowSerial)),
        ("{<1/4 row, 2 col>, 1}", (None, Some(1), Some(4), 2, Family::RowGroup)),
        ("{<2 row, 1/8 col>, 4}", (None, Some(2), Some(8), 1, Family::RowGroup)),
    ] {
        let point = read(text).unwrap();
        let rows = (point.rows_per_thread(), point.threads_per_row());
        let got = (point.nonzeros_per_thread(), rows.0, rows.1, point.columns_per_thread(), point.family());
        assert_eq!(got, want, "{text}");
        assert_eq!(point.is_nonzero_split(), point.nonzeros_per_thread().is_some());
        assert_eq!(AtomicParallelism::new(point.data(), point.cols(), point.reduction()), Ok(point));
    }
}

#[test]
fn families_are_named_by_their_form() {
    let names = Family::ALL.map(|family| family.to_string());
    assert_eq!(
        names,
        [
            "{<g nnz, c col>, 1}",
            "{<x row, c col>, 1}",
            "{<1/g row, c col>, r} or {<x row, 1/c col>, r}",
            "{<g nnz, c col>, r}"
        ]
    );
    assert_eq!(serde_json::to_string(&Family::NnzGroup).unwrap(), "\"{<g nnz, c col>, r}\"");
}

#[test]
fn da_spmm_is_in_the_space() {
    let names = DaSpmm::ALL.map(|algorithm| algorithm.to_string());
    let want =
        ["EB+PR+RM", "EB+PR+CM", "EB+SR+RM", "EB+SR+CM", "RB+PR+RM", "RB+PR+CM", "RB+SR+RM", "RB+SR+CM"];
    assert_eq!(names, want);
    for c in COLUMNS {
        let points = DaSpmm::ALL.map(|algorithm| algorithm.point(c).unwrap().to_string());
        let [even_parallel, even_serial] =
            [format!("{{<1 nnz, {c} col>, 32}}"), format!("{{<32 nnz, {c} col>, 1}}")];
        let [row_parallel, row_serial] =
            [format!("{{<1/32 row, {c} col>, 32}}"), format!("{{<1 row, {c} col>, 1}}")];
        assert_eq!(
            points,
            [
                &even_parallel,
                &even_parallel,
                &even_serial,
                &even_serial,
                &row_parallel,
                &row_parallel,
                &row_serial,
                &row_serial
            ]
            .map(String::clone)
        );
    }
    for algorithm in DaSpmm::ALL {
        let (zero, three) = (Share::Whole(0), Share::Whole(3));
        assert_eq!(algorithm.point(0), Err(IllegalPoint::NoShare { share: zero, unit: "col" }));
        assert_eq!(algorithm.point(3), Err(IllegalPoint::NoKernel { share: three, unit: "col" }));
    }
    assert_eq!(serde_json::to_string(&DaSpmm::RbSrCm).unwrap(), "\"RB+SR+CM\"");
}
