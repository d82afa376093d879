//! The same small matrices through every crate that there are conversions for, there and back.

use proptest::prelude::*;

use super::*;
use crate::Coo;

/// Small matrices, empty ones among them.
fn matrices() -> impl Strategy<Value = Csr<f32>> {
    (0usize..6, 0usize..6).prop_flat_map(|(rows, cols)| {
        proptest::collection::vec(prop_oneof![3 => Just(0.0f32), 2 => -4.0f32..4.0], rows * cols)
            .prop_map(move |dense| Csr::from_dense(rows, cols, &dense).unwrap())
    })
}

fn small() -> Csr<f64> {
    Csr::from_dense(2, 3, &[0.0, 5.0, 6.0, 7.0, 8.0, 0.0]).unwrap()
}

#[test]
fn indices_beyond_32_bits_are_beyond_every_matrix() {
    let beyond = from_rows((1, 5), [0, 1].into_iter(), [1usize << 32].into_iter(), &[1.0f32]);
    let expected = FormatError::ColumnOutOfRange { row: 0, entry: 0, column: u64::from(u32::MAX), cols: 5 };
    assert_eq!(beyond, Err(expected));
    let large = from_columns((1 << 33, 0), [0].into_iter(), [].into_iter(), &[0.0f32; 0]);
    assert_eq!(large, Err(FormatError::DimensionTooLarge { what: "columns", found: 1 << 33 }));
}

#[cfg(feature = "sprs")]
mod through_sprs {
    use sprs::{CsMat, CsMatI, TriMat};

    use super::*;

    proptest! {
        #[test]
        fn rows_and_columns(a in matrices()) {
            let rows = CsMat::try_from(&a).unwrap();
            prop_assert_eq!(&Csr::try_from(&rows).unwrap(), &a);
            prop_assert_eq!(&Csr::try_from(rows.view()).unwrap(), &a);
            let columns = rows.to_csc();
            prop_assert!(columns.is_csc());
            prop_assert_eq!(&Csr::try_from(columns).unwrap(), &a);
            prop_assert_eq!(Csr::try_from(rows.transpose_view()).unwrap(), a.transpose().unwrap());
        }
    }

    #[test]
    fn other_indices_parts_and_triplets() {
        let narrow =
            CsMatI::<f64, u16, u32>::new((2, 3), vec![0, 2, 4], vec![1, 2, 0, 1], vec![5.0, 6.0, 7.0, 8.0]);
        assert_eq!(Csr::try_from(&narrow).unwrap(), small());
        // Offsets of a part begin at 2.
        let second = Csr::try_from(&narrow.slice_outer(1..2)).unwrap();
        assert_eq!((second.rows(), second.row(0)), (1, (&[0, 1][..], &[7.0, 8.0][..])));
        let list = TriMat::from_triplets((2, 2), vec![1, 0, 1], vec![0, 1, 0], vec![1.0f32, 2.0, 3.0]);
        let coo = Coo::try_from(&list).unwrap();
        assert_eq!((coo.nnz(), coo.to_csr().unwrap().row(1)), (3, (&[0][..], &[4.0][..])));
    }
}

#[cfg(feature = "nalgebra-sparse")]
mod through_nalgebra {
    use nalgebra_sparse::{CooMatrix, CscMatrix, CsrMatrix};

    use super::*;

    proptest! {
        #[test]
        fn rows_columns_and_coordinates(a in matrices()) {
            let rows = CsrMatrix::try_from(&a).unwrap();
            prop_assert_eq!((rows.nrows(), rows.ncols(), rows.nnz()), (a.rows(), a.cols(), a.nnz()));
            prop_assert_eq!(&Csr::try_from(rows).unwrap(), &a);
            let columns = CscMatrix::try_from(&a).unwrap();
            prop_assert_eq!(columns.nnz(), a.nnz());
            prop_assert_eq!(&Csr::try_from(&columns).unwrap(), &a);
            let list = CooMatrix::try_from(&a.to_coo().unwrap()).unwrap();
            prop_assert_eq!(&Coo::try_from(list).unwrap().to_csr().unwrap(), &a);
        }
    }

    #[test]
    fn an_entry_is_where_it_was() {
        let columns = CscMatrix::try_from(&small()).unwrap();
        assert_eq!(columns.get_entry(0, 2).unwrap().into_value(), 6.0);
        assert_eq!(CsrMatrix::try_from(&small()).unwrap().get_entry(1, 0).unwrap().into_value(), 7.0);
    }
}

#[cfg(feature = "faer")]
mod through_faer {
    use faer::sparse::{SparseColMat, SparseColMatRef, SparseRowMat, SymbolicSparseColMatRef, Triplet};

    use super::*;

    proptest! {
        #[test]
        fn columns_and_rows(a in matrices()) {
            let columns = SparseColMat::try_from(&a).unwrap();
            prop_assert_eq!((columns.nrows(), columns.ncols()), (a.rows(), a.cols()));
            prop_assert_eq!(&Csr::try_from(&columns).unwrap(), &a);
            let rows = SparseRowMat::try_from(&a).unwrap();
            prop_assert_eq!(&Csr::try_from(rows.as_ref()).unwrap(), &a);
            prop_assert_eq!(Csr::try_from(rows.as_ref().transpose()).unwrap(), a.transpose().unwrap());
        }
    }

    #[test]
    fn narrow_indices_and_columns_with_room() {
        let entries = [
            Triplet::new(0u32, 1, 5.0),
            Triplet::new(0, 2, 6.0),
            Triplet::new(1, 0, 7.0),
            Triplet::new(1, 1, 8.0),
        ];
        let columns = SparseColMat::<u32, f64>::try_new_from_triplets(2, 3, &entries).unwrap();
        assert_eq!(Csr::try_from(columns).unwrap(), small());
        // Two places in each column, of which 1, 2 and 1 are used.
        let (offsets, used, rows) = ([0u64, 2, 4, 6], [1u64, 2, 1], [1u64, 9, 0, 1, 0, 9]);
        let symbolic = SymbolicSparseColMatRef::new_checked(2, 3, &offsets, Some(&used), &rows);
        let roomy = SparseColMatRef::new(symbolic, &[7.0, f64::NAN, 5.0, 8.0, 6.0, f64::NAN]);
        assert_eq!(Csr::try_from(roomy).unwrap(), small());
    }
}
