//! What is written reads back as the same matrix, bit by bit, in every format and value type.

use crate::io_support::read;
use half::{bf16, f16};
use proptest::prelude::*;
use windrow_formats::io::{
    self, Format, ReadOptions, WriteError, WriteOptions, read_csr_with_report, write_csr, write_edge_list,
    write_matrix_market, write_scipy_npz, write_smtx,
};
use windrow_formats::{Csr, Value};

/// A matrix whose values have any bits; NaN has the payload of `V::from_f64(NAN)`, since text holds none.
fn matrix<V: Value>(bits: impl Strategy<Value = V> + Clone) -> impl Strategy<Value = Csr<V>> {
    let size = (0usize..30, 0u32..30);
    size.prop_flat_map(move |(rows, cols)| {
        let most = cols.min(6) as usize;
        let row = proptest::collection::btree_map(0..cols.max(1), bits.clone(), 0..=most);
        proptest::collection::vec(row, rows).prop_map(move |matrix| {
            let mut offsets = vec![0u64];
            let (mut col_indices, mut values) = (Vec::new(), Vec::new());
            for row in matrix {
                for (col, value) in row.into_iter().filter(|_| cols > 0) {
                    col_indices.push(col);
                    values.push(if value.to_f64().is_nan() { V::from_f64(f64::NAN) } else { value });
                }
                offsets.push(values.len() as u64);
            }
            Csr::try_from_parts(rows, cols as usize, offsets, col_indices, values).unwrap()
        })
    })
}

/// Values of any bits, one in four of them 1.
fn any_value<V: Value>(value: impl Strategy<Value = V> + Clone) -> impl Strategy<Value = V> + Clone {
    (0u8..4, value).prop_map(|(kind, value)| if kind == 0 { V::ONE } else { value })
}

#[track_caller]
fn assert_same<V: Value>(got: &Csr<V>, want: &Csr<V>) {
    assert_eq!((got.rows(), got.cols()), (want.rows(), want.cols()));
    assert_eq!((got.row_offsets(), got.col_indices()), (want.row_offsets(), want.col_indices()));
    let bits =
        |csr: &Csr<V>| csr.values().iter().flat_map(|v| bytemuck::bytes_of(v).to_vec()).collect::<Vec<_>>();
    assert!(bits(got) == bits(want), "{:?}\nis not\n{:?}", got.values(), want.values());
}

fn round_trips<V: Value>(csr: &Csr<V>) {
    let mut text = Vec::new();
    write_matrix_market(&mut text, csr).unwrap();
    assert_same(&read(&text).unwrap().0, csr);

    let mut text = Vec::new();
    match write_edge_list(&mut text, csr) {
        Ok(()) => assert_same(&read(&text).unwrap().0, csr),
        Err(WriteError::NotRepresentable { .. }) => {
            let largest = csr
                .rows_iter()
                .enumerate()
                .flat_map(|(row, (cols, _))| cols.iter().map(move |&col| row.max(col as usize) + 1));
            let implied = largest.max().unwrap_or(0);
            assert!(csr.rows() != implied || csr.cols() != implied);
            assert!(text.is_empty());
        }
        Err(error) => panic!("{error}"),
    }

    let mut text = Vec::new();
    write_smtx(&mut text, csr).unwrap();
    assert_same(&read(&text).unwrap().0, &csr.map_values(|_| V::ONE));

    let mut archive = Vec::new();
    write_scipy_npz(&mut archive, csr).unwrap();
    assert_same(&read(&archive).unwrap().0, csr);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn f64_matrices(csr in matrix(any_value(any::<u64>().prop_map(f64::from_bits)))) {
        round_trips(&csr);
    }

    #[test]
    fn f32_matrices(csr in matrix(any_value(any::<u32>().prop_map(f32::from_bits)))) {
        round_trips(&csr);
    }

    #[test]
    fn f16_matrices(csr in matrix(any_value(any::<u16>().prop_map(f16::from_bits)))) {
        round_trips(&csr);
    }

    #[test]
    fn bf16_matrices(csr in matrix(any_value(any::<u16>().prop_map(bf16::from_bits)))) {
        round_trips(&csr);
    }

    #[test]
    fn patterns(csr in matrix(Just(1.0f32))) {
        round_trips(&csr);
    }
}

#[test]
fn every_f16_and_bf16() {
    for first in (0..=u16::MAX).step_by(1 << 10) {
        let numbers: Vec<u16> = (first..=first + 1023).collect();
        let (offsets, cols) = (vec![0, 1024], (0..1024).collect::<Vec<_>>());
        let canonical = |x: f16| if x.is_nan() { Value::from_f64(f64::NAN) } else { x };
        let values = numbers.iter().map(|&bits| canonical(f16::from_bits(bits))).collect();
        let csr = Csr::<f16>::try_from_parts(1, 1024, offsets.clone(), cols.clone(), values).unwrap();
        round_trips(&csr);
        let canonical = |x: bf16| if x.is_nan() { Value::from_f64(f64::NAN) } else { x };
        let values = numbers.iter().map(|&bits| canonical(bf16::from_bits(bits))).collect();
        round_trips(&Csr::<bf16>::try_from_parts(1, 1024, offsets, cols, values).unwrap());
    }
}

#[test]
fn archives_keep_the_payload_of_nan() {
    let values = [0x7fc0_1234u32, 0xffc0_0001, 0x7f80_0000].map(f32::from_bits).to_vec();
    let csr = Csr::try_from_parts(1, 3, vec![0, 3], vec![0, 1, 2], values).unwrap();
    let mut archive = Vec::new();
    write_scipy_npz(&mut archive, &csr).unwrap();
    assert_same(&read::<f32>(&archive).unwrap().0, &csr);
}

#[test]
fn what_the_text_looks_like() {
    let csr = Csr::try_from_parts(2, 2, vec![0, 1, 2], vec![1, 0], vec![0.1f32, -2.0]).unwrap();
    let mut text = Vec::new();
    write_matrix_market(&mut text, &csr).unwrap();
    let want = "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 2 0.1\n2 1 -2\n";
    assert_eq!(String::from_utf8(text).unwrap(), want);
    let mut text = Vec::new();
    write_edge_list(&mut text, &csr).unwrap();
    let want = "# Nodes: 2 Edges: 2 (windrow)\n# FromNodeId\tToNodeId\tValue\n0\t1\t0.1\n1\t0\t-2\n";
    assert_eq!(String::from_utf8(text).unwrap(), want);
    let mut text = Vec::new();
    write_smtx(&mut text, &csr).unwrap();
    assert_eq!(String::from_utf8(text).unwrap(), "2, 2, 2\n0 1 2 \n1 0 \n");
    let mut text = Vec::new();
    write_matrix_market(&mut text, &Csr::<f64>::identity(2).unwrap()).unwrap();
    let want = "%%MatrixMarket matrix coordinate pattern general\n2 2 2\n1 1\n2 2\n";
    assert_eq!(String::from_utf8(text).unwrap(), want);
}

/// A path in a folder of this test's own.
fn in_folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("windrow-round-trip-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

#[test]
fn names_tell_the_format() {
    // Long enough for several pieces, and with its last row and column.
    let n = 3000u32;
    let cols: Vec<u32> = (0..n).flat_map(|row| [row / 2, n - 1]).collect();
    let offsets = (0..=u64::from(n)).map(|row| 2 * row).collect();
    let values = (0..2 * n).map(|i| f64::from(i) / 7.0).collect();
    let csr = Csr::try_from_parts(n as usize, n as usize, offsets, cols, values).unwrap();
    for (name, format, gzip) in [
        ("a.mtx", Format::MatrixMarket, false),
        ("a.mm.gz", Format::MatrixMarket, true),
        ("A.MTX.GZ", Format::MatrixMarket, true),
        ("a.txt", Format::EdgeList, false),
        ("a.el.gz", Format::EdgeList, true),
        ("a.edges", Format::EdgeList, false),
        ("a.npz", Format::ScipyNpz, false),
        ("a.npz.gz", Format::ScipyNpz, true),
        ("a.smtx", Format::Smtx, false),
        ("a.smtx.gz", Format::Smtx, true),
    ] {
        let path = in_folder(name);
        let calls = std::sync::atomic::AtomicU64::new(0);
        let progress = |progress: io::Progress| {
            assert_eq!(
                (progress.stage, progress.total_bytes),
                (io::Stage::Writing, Some(12 * csr.nnz() as u64))
            );
            calls.store(progress.done_bytes, std::sync::atomic::Ordering::Relaxed);
        };
        let options = WriteOptions { progress: Some(&progress), ..WriteOptions::default() };
        let written = write_csr(&path, &csr, &options).unwrap();
        assert_eq!(calls.into_inner(), 12 * csr.nnz() as u64);
        assert_eq!((written.format, written.gzip, written.entries), (format, gzip, 6000));
        let (back, report) = read_csr_with_report::<f64>(&path, &ReadOptions::default()).unwrap();
        assert_eq!((report.format, report.gzip), (format, gzip), "{name}");
        if format == Format::Smtx {
            assert_eq!(written.values_dropped, 5999, "only 7/7 is 1");
            assert_same(&back, &csr.map_values(|_| 1.0));
        } else {
            assert_eq!(written.values_dropped, 0);
            assert_same(&back, &csr);
        }
        std::fs::remove_file(path).unwrap();
    }
    let path = in_folder("a.dat");
    let error = write_csr(&path, &csr, &WriteOptions::default()).unwrap_err();
    assert!(matches!(error.cause(), WriteError::UnknownExtension) && error.to_string().contains("a.dat: "));
    let options =
        WriteOptions { format: Some(Format::MatrixMarket), gzip: Some(true), ..WriteOptions::default() };
    assert!(write_csr(&path, &csr, &options).unwrap().gzip);
    assert_same(&io::read_csr(&path).unwrap(), &csr);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn what_a_format_cannot_hold_is_refused_before_anything_is_written() {
    let path = in_folder("refused.txt");
    let wide = Csr::<f32>::zeros(2, 3).unwrap();
    let error = write_csr(&path, &wide, &WriteOptions::default()).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("read as 0 × 0, by the largest id, but is 2 × 3; write Matrix Market"),
        "{message}"
    );
    let options = WriteOptions { format: Some(Format::TcGnnNpz), ..WriteOptions::default() };
    let error = write_csr(&path, &wide, &options).unwrap_err();
    assert!(error.to_string().contains("there is no writer"), "{error}");
    assert!(!path.exists());
    let error = write_csr(in_folder("no/such/folder.mtx"), &wide, &WriteOptions::default()).unwrap_err();
    assert!(matches!(error.cause(), WriteError::Io(_)), "{error}");
}
