//! Every legal Matrix Market header, and every place where blanks, comments and line ends may vary.

use crate::io_support::{check, entries, gzip, read};
use windrow_formats::io::{Field, Format, Header, Layout, Symmetry};

fn header(layout: Layout, field: Field, symmetry: Symmetry) -> Header {
    Header::MatrixMarket { layout, field, symmetry }
}

#[test]
fn coordinate_general() {
    let want = [(0, 1, -1.5), (1, 0, 3e-7), (1, 2, 4.0)];
    let body = "2 3 3\n1 2 -1.5\n2 3 4\n2 1 3e-7\n";
    let report = check(format!("%%MatrixMarket matrix coordinate real general\n{body}"), (2, 3), &want);
    assert_eq!(report.header, header(Layout::Coordinate, Field::Real, Symmetry::General));
    assert_eq!((report.format, report.gzip, report.entries_read), (Format::MatrixMarket, false, 3));
    assert_eq!((report.mirrored, report.duplicates_summed, report.pattern_values), (0, 0, 0));
    check(format!("%%MatrixMarket matrix coordinate double general\n{body}"), (2, 3), &want);

    let integers = "2 2 2\n1 1 -7\n2 2 +9007199254740993\n";
    let want = [(0, 0, -7.0), (1, 1, 9007199254740992.0)];
    for field in ["integer", "unsigned-integer"] {
        let text = format!("%%MatrixMarket matrix coordinate {field} general\n{integers}");
        let report = check(text, (2, 2), &want);
        assert_eq!(report.header, header(Layout::Coordinate, Field::Integer, Symmetry::General));
    }

    let pattern = "%%MatrixMarket matrix coordinate pattern general\n2 2 2\n1 2\n2 1\n";
    let report = check(pattern, (2, 2), &[(0, 1, 1.0), (1, 0, 1.0)]);
    assert_eq!(report.header, header(Layout::Coordinate, Field::Pattern, Symmetry::General));
    assert_eq!(report.pattern_values, 2);
}

#[test]
fn coordinate_symmetric() {
    let body = "3 3 3\n1 1 5\n2 1 -2\n3 2 4\n";
    let want = [(0, 0, 5.0), (0, 1, -2.0), (1, 0, -2.0), (1, 2, 4.0), (2, 1, 4.0)];
    for field in ["real", "integer"] {
        let report =
            check(format!("%%MatrixMarket matrix coordinate {field} symmetric\n{body}"), (3, 3), &want);
        assert_eq!((report.entries_read, report.mirrored), (3, 2));
    }
    let ones = want.map(|(row, col, _)| (row, col, 1.0));
    let pattern = "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 3\n1 1\n2 1\n3 2\n";
    let report = check(pattern, (3, 3), &ones);
    assert_eq!((report.entries_read, report.mirrored, report.pattern_values), (3, 2, 5));
    // Some programs write the upper triangle.
    let upper = "%%MatrixMarket matrix coordinate real symmetric\n3 3 3\n1 1 5\n1 2 -2\n2 3 4\n";
    check(upper, (3, 3), &want);
}

#[test]
fn coordinate_skew_symmetric() {
    let want = [(0, 1, 2.0), (0, 2, 0.0), (1, 0, -2.0), (2, 0, -0.0)];
    for field in ["real", "integer"] {
        let text =
            format!("%%MatrixMarket matrix coordinate {field} skew-symmetric\n3 3 2\n2 1 -2\n3 1 -0\n");
        let report = check(text, (3, 3), &want);
        assert_eq!(report.mirrored, 2);
    }
}

#[test]
fn array_general_is_column_by_column_and_drops_zeros() {
    let text = "%%MatrixMarket matrix array real general\n2 3\n1\n0\n-0.0\n4\nnan\n6e0\n";
    let report = check(text, (2, 3), &[(0, 0, 1.0), (0, 2, f64::NAN), (1, 1, 4.0), (1, 2, 6.0)]);
    assert_eq!(report.header, header(Layout::Array, Field::Real, Symmetry::General));
    assert_eq!((report.entries_read, report.zeros_dropped), (6, 2));
    let integers = "%%MatrixMarket matrix array integer general\n1 2\n-1\n2\n";
    check(integers, (1, 2), &[(0, 0, -1.0), (0, 1, 2.0)]);
}

#[test]
fn array_symmetric_is_the_lower_triangle() {
    // Columns (1, 2, 3), (4, 5), (6).
    let text = "%%MatrixMarket matrix array real symmetric\n3 3\n1\n2\n3\n4\n5\n6\n";
    let want = [
        (0, 0, 1.0),
        (0, 1, 2.0),
        (0, 2, 3.0),
        (1, 0, 2.0),
        (1, 1, 4.0),
        (1, 2, 5.0),
        (2, 0, 3.0),
        (2, 1, 5.0),
        (2, 2, 6.0),
    ];
    let report = check(text, (3, 3), &want);
    assert_eq!((report.entries_read, report.mirrored), (6, 3));
}

#[test]
fn array_skew_symmetric_is_the_strict_lower_triangle() {
    let text = "%%MatrixMarket matrix array integer skew-symmetric\n3 3\n1\n2\n3\n";
    let want = [(0, 1, -1.0), (0, 2, -2.0), (1, 0, 1.0), (1, 2, -3.0), (2, 0, 2.0), (2, 1, 3.0)];
    check(text, (3, 3), &want);
}

#[test]
fn large_arrays_are_placed_right_across_blocks() {
    // Several blocks of text. Value 1 + number, in each symmetry.
    let n = 700u32;
    for (symmetry, skip) in [("general", None), ("symmetric", Some(0)), ("skew-symmetric", Some(1))] {
        let mut text = format!("%%MatrixMarket matrix array real {symmetry}\n{n} {n}\n");
        let mut want = Vec::new();
        let mut number = 0.0;
        for col in 0..n {
            for row in skip.map_or(0, |skip| col + skip)..n {
                number += 1.0;
                text += &format!("{number}\n");
                want.push((row as usize, col, number));
                if skip.is_some() && row != col {
                    want.push((col as usize, row, if skip == Some(1) { -number } else { number }));
                }
            }
        }
        assert!(text.len() > 3 << 19, "{} bytes", text.len());
        want.sort_by_key(|&(row, col, _)| (row, col));
        check(text, (n as usize, n as usize), &want);
    }
}

#[test]
fn headers_are_case_insensitive() {
    let want = [(0, 0, 2.0)];
    check("%%matrixmarket MATRIX Coordinate REAL General\n1 1 1\n1 1 2\n", (1, 1), &want);
    check("%%MATRIXMARKET matrix COORDINATE Integer SYMMETRIC\n1 1 1\n1 1 2\n", (1, 1), &want);
    check("  %%MatrixMarket\tmatrix  coordinate real   general  \n1 1 1\n1 1 2\n", (1, 1), &want);
}

#[test]
fn comments_blanks_and_line_ends() {
    let want = [(0, 1, 2.5), (1, 0, 3.0)];
    for text in [
        "%%MatrixMarket matrix coordinate real general\n% c\n%\n\n  % d\n2 2 2\n1 2 2.5\n2 1 3\n",
        "%%MatrixMarket matrix coordinate real general\r\n% c\r\n\r\n2 2 2\r\n1 2 2.5\r\n2 1 3\r\n",
        "%%MatrixMarket matrix coordinate real general\n2 2 2\n\n1 2 2.5\n % between\n\t\n2 1 3\n\n\n",
        "%%MatrixMarket matrix coordinate real general\n 2\t2  2 \n   1  2\t\t2.5  \n\t2 1 3.000\t\n",
        "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 2 2.5\n2 1 3",
        "%%MatrixMarket matrix coordinate real general\r\n2 2 2\r\n1 2 2.5\r\n2 1 3 \r\n",
        "%%MatrixMarket matrix coordinate real general\n00002 02 2\n01 0000000002 2.5\n2 00000000000000000001 3",
        "\u{feff}%%MatrixMarket matrix coordinate real general\n2 2 2\n1 2 2.5\n2 1 3\n",
        "\n \n%%MatrixMarket matrix coordinate real general\n2 2 2\n1 2 2.5\n2 1 3\n",
    ] {
        check(text, (2, 2), &want);
        let report = check(gzip(text.as_bytes()), (2, 2), &want);
        assert!(report.gzip);
    }
}

#[test]
fn values_are_what_str_parse_makes_of_them() {
    let spellings = [
        "1",
        "-0",
        "+.5",
        "5.",
        "1e400",
        "-1E-400",
        "4.9e-324",
        "1.7976931348623157e308",
        "inf",
        "-Infinity",
        "nan",
        "-NaN",
        "123456789012345678901234567890",
        "0.1234567890123456789012345678901234567890",
        "9007199254740993",
        "2.2250738585072011e-308",
        "1e23",
        "1.2345678901234567e-12",
    ];
    let count = spellings.len();
    let mut text = format!("%%MatrixMarket matrix coordinate real general\n1 {count} {count}\n");
    for (col, spelling) in spellings.iter().enumerate() {
        text += &format!("1 {} {spelling}\n", col + 1);
    }
    let (csr, _) = read::<f64>(&text).unwrap();
    for (value, spelling) in csr.values().iter().zip(spellings) {
        let want: f64 = spelling.parse().unwrap();
        assert!(
            value.to_bits() == want.to_bits() || value.is_nan() && want.is_nan(),
            "{spelling}: {value:e}"
        );
    }
}

/// The other forms: full arrays, mirrored halves, negated mirrors, weighted edges; nothing goes through f32.
#[test]
fn f64_values_keep_every_bit_in_every_form() {
    let hard = [0.1, 1.0 + f64::EPSILON, f64::from_bits(1), f64::MAX, f64::MIN_POSITIVE / 3.0];
    let bits = |text: &str| -> Vec<u64> {
        read::<f64>(text).unwrap().0.values().iter().map(|value| value.to_bits()).collect()
    };
    for (value, negated) in hard.iter().flat_map(|&x| [(x, -x), (-x, x)]) {
        let once = [value.to_bits()];
        assert_eq!(bits(&format!("%%MatrixMarket matrix array real general\n1 1\n{value:e}\n")), once);
        let mirrored = |symmetry: &str| {
            bits(&format!("%%MatrixMarket matrix coordinate real {symmetry}\n2 2 1\n2 1 {value:e}\n"))
        };
        assert_eq!(mirrored("symmetric"), [value.to_bits(); 2]);
        assert_eq!(mirrored("skew-symmetric"), [negated.to_bits(), value.to_bits()]);
        assert_eq!(bits(&format!("# weighted\n0 1 {value:e}\n")), once);
    }
}

#[test]
fn explicit_zeros_are_kept_and_duplicates_summed() {
    let text = "%%MatrixMarket matrix coordinate real general\n2 2 5\n2 2 0\n1 1 1\n1 1 2\n2 1 5\n2 1 -5\n";
    let report = check(text, (2, 2), &[(0, 0, 3.0), (1, 0, 0.0), (1, 1, 0.0)]);
    assert_eq!((report.entries_read, report.duplicates_summed), (5, 2));
    let shown = "Matrix Market coordinate real general: 5 entries, 2 duplicates summed";
    assert_eq!(report.to_string(), shown);
}

#[test]
fn matrices_without_rows_columns_or_entries() {
    for size in [(0, 0), (0, 7), (7, 0), (3, 4)] {
        let text = format!("%%MatrixMarket matrix coordinate real general\n{} {} 0\n", size.0, size.1);
        check(text, size, &[]);
        let zeros = "0\n".repeat(size.0 * size.1);
        let text =
            format!("%%MatrixMarket matrix array real general\n{} {}\n% none\n{zeros}", size.0, size.1);
        check(text, size, &[]);
    }
    check("%%MatrixMarket matrix array real symmetric\n0 0\n", (0, 0), &[]);
    check("%%MatrixMarket matrix array real skew-symmetric\n0 0\n\n", (0, 0), &[]);
    check("%%MatrixMarket matrix array real skew-symmetric\n1 1\n", (1, 1), &[]);
}

#[test]
fn every_value_type_rounds_once_from_f64() {
    let text = "%%MatrixMarket matrix coordinate real general\n1 2 2\n1 1 0.1\n1 2 1e6\n";
    let (csr, _) = read::<f32>(text).unwrap();
    assert_eq!(csr.values(), [0.1f32, 1e6]);
    let (csr, _) = read::<half::f16>(text).unwrap();
    assert_eq!(csr.values(), [half::f16::from_f64(0.1), half::f16::INFINITY]);
    let (csr, _) = read::<half::bf16>(text).unwrap();
    assert_eq!(csr.values(), [half::bf16::from_f64(0.1), half::bf16::from_f64(1e6)]);
}

#[test]
fn many_blocks_give_the_same_matrix_as_one_thread() {
    // 200 000 entries in scattered order, over many blocks and buckets, with comments and gaps between.
    let (rows, cols, count) = (9973u32, 10007u32, 200_000u32);
    let mut text = format!("%%MatrixMarket matrix coordinate real general\n{rows} {cols} {count}\n");
    let mut want = std::collections::BTreeMap::new();
    for i in 0..count {
        let (row, col) = (i * 7919 % rows, i % 1811 * (i % 1811) % cols);
        let value = f64::from(i % 1000) / 8.0;
        text += &format!("{} {} {value}\n", row + 1, col + 1);
        if i % 1013 == 0 {
            text += "\n% a comment\n";
        }
        *want.entry((row as usize, col)).or_insert(0.0) += value;
    }
    let want: Vec<_> = want.into_iter().map(|((row, col), value)| (row, col, value)).collect();
    let (csr, report) = read::<f64>(&text).unwrap();
    assert_eq!(entries(&csr), want);
    assert_eq!(report.content_bytes, text.len() as u64);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(pool.install(|| read::<f64>(&text).unwrap().0), csr);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(5).build().unwrap();
    assert_eq!(pool.install(|| read::<f64>(&text).unwrap().0), csr);
}
