//! Batches of graphs and heads as one plan, on every device, against a plan for each.

use windrow::{Csr, Device, Sddmm, Spmm};
use windrow_testkit::{Pattern, SplitMix64, Values};

use crate::attention_case::{lengths, no_entries, no_rows};
use crate::common::{devices, report_missing_gpu};

const FEATURES: usize = 24;

fn integers(count: usize, rng: &mut SplitMix64) -> Vec<f32> {
    (0..count).map(|_| (rng.next_u64() % 9) as f32 - 4.0).collect()
}

/// Small graphs, some without rows or entries.
fn graphs() -> Vec<Csr<f32>> {
    let mut rng = SplitMix64::new(71);
    let mut graphs = vec![no_rows(), lengths(), no_entries()];
    for rows in [1, 40, 9] {
        let pattern = Pattern::from_lengths(rows, (0..rows).map(|row| row % 5), &mut rng);
        graphs.push(pattern.with_values(Values::Integers, &mut rng));
    }
    graphs
}

fn product(a: &Csr<f32>, b: &[f32], device: &Device) -> Vec<f32> {
    Spmm::builder(a).width(FEATURES).build(device).unwrap().run(b).unwrap()
}

#[test]
fn a_batch_is_the_products_of_its_graphs() {
    let graphs = graphs();
    let batch = Csr::block_diagonal(&graphs.iter().collect::<Vec<_>>()).unwrap();
    for device in devices() {
        let mut rng = SplitMix64::new(72);
        let of_graphs: Vec<Vec<f32>> =
            graphs.iter().map(|a| integers(a.cols() * FEATURES, &mut rng)).collect();
        let want: Vec<f32> =
            graphs.iter().zip(&of_graphs).flat_map(|(a, b)| product(a, b, &device)).collect();
        assert_eq!(product(&batch, &of_graphs.concat(), &device), want, "{device}");
    }
    report_missing_gpu("batches", 1);
}

/// Values of their own for each head, in either layout; and samples of products, which come in the order of values.
#[test]
fn heads_are_products_of_their_own() {
    let (a, heads) = (lengths(), 3);
    let (m, n, nnz) = (a.rows(), a.cols(), a.nnz());
    let (beside, order) = a.heads_beside(heads).unwrap();
    let below = Csr::block_diagonal(&vec![&a; heads]).unwrap();
    for device in devices() {
        let mut rng = SplitMix64::new(73);
        let values = integers(heads * nnz, &mut rng);
        let b = integers(heads * n * FEATURES, &mut rng); // [heads, n, d]
        let want: Vec<f32> = (0..heads)
            .flat_map(|head| {
                let own = a.with_values(values[head * nnz..(head + 1) * nnz].to_vec()).unwrap();
                product(&own, &b[head * n * FEATURES..(head + 1) * n * FEATURES], &device)
            })
            .collect();
        let mut plan = Spmm::builder(&below).width(FEATURES).build(&device).unwrap();
        plan.replace_values(&values).unwrap();
        assert_eq!(plan.run(&b).unwrap(), want, "below each other on {device}");
        // `[n, heads, d]` of the same.
        let interleaved = |rows: usize, of: &[f32]| -> Vec<f32> {
            let row = |row, head| of[(head * rows + row) * FEATURES..][..FEATURES].iter().copied();
            (0..rows).flat_map(|i| (0..heads).flat_map(move |head| row(i, head))).collect()
        };
        let builder = Spmm::builder(&beside).width(FEATURES).value_order(&order);
        let mut plan = builder.build(&device).unwrap();
        plan.replace_values(&values).unwrap();
        assert_eq!(plan.run(&interleaved(n, &b)).unwrap(), interleaved(m, &want), "beside on {device}");

        let x = integers(heads * m * FEATURES, &mut rng);
        let sample = |a: &Csr<f32>, x: &[f32], y: &[f32]| -> Vec<f32> {
            Sddmm::builder(a).inner(FEATURES).build(&device).unwrap().run(x, y).unwrap()
        };
        let of_heads = sample(&below, &x, &b);
        for head in 0..heads {
            let (of_x, of_y) = (m * FEATURES, n * FEATURES);
            let own = sample(&a, &x[head * of_x..(head + 1) * of_x], &b[head * of_y..(head + 1) * of_y]);
            assert_eq!(of_heads[head * nnz..(head + 1) * nnz], own, "head {head} on {device}");
        }
        let found = sample(&beside, &interleaved(m, &x), &interleaved(n, &b));
        assert_eq!(found, order.apply(&of_heads), "samples beside each other on {device}");
    }
    report_missing_gpu("heads", 1);
}
