//! The patterns are pinned by checksum, so that results stay comparable.

use std::collections::BTreeMap;

use super::*;
use crate::{Coo3, NmPattern};

/// FNV-1a, 64 bits, over row offsets then columns, each as 4 bytes, least significant first.
fn checksum(csr: &Csr<f32>) -> u64 {
    let offsets = csr.row_offsets().iter().map(|&offset| u32::try_from(offset).unwrap());
    let words = offsets.chain(csr.col_indices().iter().copied());
    words.flat_map(u32::to_le_bytes).fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// Rows, entries and checksum of each pattern.
const PINNED: [(Synthetic, usize, usize, u64); 8] = [
    (Synthetic::Rmat17, 131_072, 1_942_451, 0xCBC9_9E20_37BC_5A06),
    (Synthetic::Uniform200k, 200_000, 3_200_000, 0x37C4_49D4_DB1D_5697),
    (Synthetic::Fem100k, 100_002, 4_546_080, 0x8F30_CBEF_B436_6238),
    (Synthetic::Molbatch300k, 300_000, 939_184, 0xD7D3_550F_6D6E_F8AF),
    (Synthetic::Powerlaw100k, 100_000, 1_102_248, 0xD122_F39E_63D5_CA58),
    (Synthetic::Pruned4096, 4096, 1_677_559, 0xCEF2_CA0A_9339_A2B2),
    (Synthetic::Roadlike500k, 500_000, 1_996_022, 0xB176_ADFE_8205_9347),
    (Synthetic::Community60k, 60_000, 4_460_880, 0xD8FF_73E4_171F_6819),
];

#[test]
fn patterns_are_the_pinned_ones() {
    assert_eq!(PINNED.map(|pin| pin.0), Synthetic::ALL);
    for (kind, rows, nnz, sum) in PINNED {
        let csr = kind.generate::<f32>(1).unwrap();
        assert_eq!((csr.rows(), csr.cols(), csr.nnz()), (rows, rows, nnz), "{kind}");
        assert_eq!(checksum(&csr), sum, "{kind}: {:#018X}", checksum(&csr));
        assert_eq!(csr.canonicalised(), crate::Canonicalised::default(), "{kind}");
    }
}

#[test]
fn values_depend_on_seed_and_entry_only() {
    let values = seeded_values::<f32>(100_000, 7).unwrap();
    assert_eq!(values[..1000], seeded_values::<f32>(1000, 7).unwrap());
    assert!(values[..1000] != seeded_values::<f32>(1000, 8).unwrap());
    assert!(values.iter().all(|value| (-1.0..1.0).contains(value)));
    let mean = values.iter().map(|&value| f64::from(value)).sum::<f64>() / 1e5;
    assert!(mean.abs() < 0.01, "mean of 100 000 uniform values in [-1, 1): {mean}");
    let mut stream = SplitMix64::new(7);
    for value in &values[..10] {
        let bits = stream.next_u64() >> 40;
        assert_eq!(f64::from(*value), bits as f64 / f64::from(1 << 23) - 1.0);
    }
}

#[test]
fn every_choice_of_rows_is_as_likely() {
    // Six choices of two rows of four, each expected 10 000 times with a standard deviation of 91.
    let pattern = NmPattern::new(2, 4, 3).unwrap();
    let weights = seeded_weights::<f32>((4 * 600, 3 * 100), pattern, 1).unwrap();
    let mut times = BTreeMap::new();
    for rows in weights.indices().chunks(2 * weights.vectors()) {
        let (first, second) = rows.split_at(weights.vectors());
        for choice in first.iter().zip(second) {
            *times.entry(choice).or_insert(0) += 1;
        }
    }
    assert_eq!(times.values().sum::<u32>(), 60_000);
    assert!(times.len() == 6 && times.values().all(|times| (9600..10_400).contains(times)), "{times:?}");
}

#[test]
fn weights_depend_on_seed_pattern_and_sizes_only() {
    let pattern = NmPattern::new(3, 8, 5).unwrap();
    let weights = seeded_weights::<f32>((60, 33), pattern, 7).unwrap();
    assert_eq!(weights, seeded_weights((60, 33), pattern, 7).unwrap());
    assert_eq!(weights.values(), seeded_values::<f32>(weights.kept(), 7).unwrap());
    assert_eq!(weights.indices(), seeded_weights::<f64>((60, 33), pattern, 7).unwrap().indices());
    assert_ne!(weights.indices(), seeded_weights::<f32>((60, 33), pattern, 8).unwrap().indices());
    // Ragged groups, groups of the most rows, and weights without elements.
    for (k, n, m) in [(9, 4, 8), (10, 4, 8), (300, 1, 256), (0, 4, 8), (8, 0, 8), (0, 0, 1)] {
        let pattern = NmPattern::new(m.min(2), m, 3).unwrap();
        let weights = seeded_weights::<f32>((k, n), pattern, 1).unwrap();
        assert_eq!((weights.rows(), weights.cols(), weights.pattern()), (k, n, pattern));
    }
    let all = NmPattern::new(4, 4, 1).unwrap();
    assert_eq!(seeded_weights::<f32>((6, 1), all, 1).unwrap().indices(), [0, 1, 2, 3, 0, 1]);
    let error = seeded_weights::<f32>((1 << 32, 1), all, 1).unwrap_err();
    assert_eq!(error, FormatError::DimensionTooLarge { what: "rows", found: 1 << 32 });
}

/// How many entries the most frequent hundredth of a mode's indices has, of all.
fn share_of_heaviest(tensor: &Coo3<f32>, mode: usize) -> f64 {
    let mut times = vec![0u32; tensor.dims()[mode]];
    tensor.indices(mode).iter().for_each(|&index| times[index as usize] += 1);
    times.sort_unstable_by(|a, b| b.cmp(a));
    f64::from(times[..times.len() / 100].iter().sum::<u32>()) / tensor.nnz() as f64
}

#[test]
fn tensors_depend_on_seed_and_sizes_only() {
    let dims = [400, 1000, 300];
    let tensor = seeded_tensor::<f32>(dims, 50_000, 7).unwrap();
    assert_eq!(tensor, seeded_tensor(dims, 50_000, 7).unwrap());
    assert_eq!(tensor.values(), seeded_values::<f32>(tensor.nnz(), 7).unwrap());
    assert_eq!(tensor.indices(1), seeded_tensor::<f64>(dims, 50_000, 7).unwrap().indices(1));
    assert_ne!(tensor.indices(1), seeded_tensor::<f32>(dims, 50_000, 8).unwrap().indices(1));
    let places: Vec<_> = tensor.entries().map(|(index, _)| index).collect();
    assert!(places.is_sorted_by(|a, b| a < b));
    // Of 50 000 draws from 120 million places, about 10 are drawn again.
    assert!((49_950..50_000).contains(&tensor.nnz()), "{}", tensor.nnz());
    let law = |seed| seeded_power_law_tensor::<f32>(dims, 50_000, [1.0, 0.7, 0.0], seed).unwrap();
    assert_eq!(law(7), law(7));
    assert_ne!(law(7).indices(0), law(8).indices(0));
    assert_eq!(law(7).values(), seeded_values::<f32>(law(7).nnz(), 7).unwrap());
}

#[test]
fn power_laws_have_few_heavy_slices() {
    let dims = [10_000, 10_000, 10_000];
    let even = seeded_tensor::<f32>(dims, 200_000, 1).unwrap();
    let tensor = seeded_power_law_tensor::<f32>(dims, 200_000, [1.0, 0.5, 0.0], 1).unwrap();
    assert!(tensor.nnz() > 198_000, "{}", tensor.nnz());
    // Of ranks 1 to 101: ln 101 / ln 10 001 = 0.501, (101^0.5 - 1) / (10 001^0.5 - 1) = 0.091. Of even draws the
    // heaviest hundredth has somewhat more than one, since chance makes some of 20 expected entries 33.
    for (mode, share) in [(0, 0.501), (1, 0.091)] {
        let found = share_of_heaviest(&tensor, mode);
        approx::assert_relative_eq!(found, share, max_relative = 0.1);
        assert!(share_of_heaviest(&even, mode) < 0.02);
    }
    let (found, even) = (share_of_heaviest(&tensor, 2), share_of_heaviest(&even, 2));
    // Exponent 0 is uniform.
    approx::assert_relative_eq!(found, even, max_relative = 0.05);
}

#[test]
fn tensors_of_any_size_and_exponent() {
    for dims in [[0, 5, 5], [5, 0, 5], [5, 5, 0], [0, 0, 0]] {
        assert_eq!(seeded_tensor::<f32>(dims, 100, 1).unwrap().nnz(), 0);
        assert_eq!(seeded_power_law_tensor::<f32>(dims, 100, [1.0; 3], 1).unwrap().nnz(), 0);
    }
    assert_eq!(seeded_tensor::<f32>([2, 2, 2], 1000, 1).unwrap().nnz(), 8);
    let widest = u32::MAX as usize;
    for exponent in [0.0, 1e-9, 0.5, 1.0 - 1e-13, 1.0, 1.0 + 1e-9, 2.0, 60.0, f64::MAX] {
        let exponents = [exponent; 3];
        let tensor = seeded_power_law_tensor::<f32>([widest, 2, 1], 100, exponents, 1).unwrap();
        assert!((1..=100).contains(&tensor.nnz()), "{exponent}: {}", tensor.nnz());
        assert!((exponent < 1.5) == (tensor.nnz() > 60), "{exponent}: {}", tensor.nnz());
    }
    for (exponent, name) in [(-0.5, "-0.5"), (f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
        let error = seeded_power_law_tensor::<f32>([2; 3], 1, [0.0, exponent, f64::NAN], 1).unwrap_err();
        let message = "mode 1: there is no power law with exponent ";
        assert_eq!(error.to_string(), format!("{message}{name}; give a finite number of 0 or more"));
    }
    let error = seeded_tensor::<f32>([1, 1 << 32, 1], 1, 1).unwrap_err();
    assert_eq!(error, FormatError::ModeTooLarge { mode: 1, found: 1 << 32 });
    assert_eq!(seeded_power_law_tensor::<f32>([1, 1 << 32, 1], 1, [0.0; 3], 1).unwrap_err(), error);
}

/// FNV-1a, 64 bits, over the indices of each mode in turn, each as 4 bytes, least significant first.
fn tensor_checksum(tensor: &Coo3<f32>) -> u64 {
    let words = (0..3).flat_map(|mode| tensor.indices(mode).iter().copied());
    words.flat_map(u32::to_le_bytes).fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[test]
fn tensors_are_the_pinned_ones() {
    let uniform = seeded_tensor::<f32>([500, 600, 700], 10_000, 1).unwrap();
    assert_eq!(
        (uniform.nnz(), tensor_checksum(&uniform)),
        (10_000, 0xE691_9FC9_FC72_9F07),
        "{:#X}",
        tensor_checksum(&uniform)
    );
    let law = seeded_power_law_tensor::<f32>([500, 600, 700], 10_000, [1.1, 1.0, 0.6], 1).unwrap();
    assert_eq!(
        (law.nnz(), tensor_checksum(&law)),
        (9853, 0x270B_2068_C835_C63B),
        "{:#X}",
        tensor_checksum(&law)
    );
}

#[test]
fn the_stream_is_splitmix64() {
    // First outputs for seed 1234567, as commonly published for this generator.
    let mut stream = SplitMix64::new(1_234_567);
    let want = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
    assert_eq!([stream.next_u64(), stream.next_u64(), stream.next_u64()], want);
}

#[test]
fn bounded_draws_stay_below_the_bound() {
    let mut stream = SplitMix64::new(3);
    assert!((0..1000).all(|_| stream.below(7) < 7));
    assert_eq!((stream.below(1), stream.below(0)), (0, 0));
    assert!((0..1000).all(|_| (0.0..1.0).contains(&stream.next_f64())));
}

#[test]
fn names_are_read_back() {
    for kind in Synthetic::ALL {
        assert_eq!(kind.to_string().parse::<Synthetic>(), Ok(kind));
    }
    let error = "rmat18".parse::<Synthetic>().unwrap_err().to_string();
    assert!(
        error.starts_with("no synthetic matrix is called \"rmat18\"; there are rmat17, uniform200k"),
        "{error}"
    );
}
