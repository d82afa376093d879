//! What goes into the tiles comes back, bit for bit.

use proptest::prelude::*;
use windrow_formats::{NO_ROW, Permutation, RowAssignment, RowPath, RsTile};

use super::assigned;

fn to_bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

proptest! {
    #[test]
    fn round_trips_are_exact((csr, assignment) in assigned(300)) {
        let tiles = RsTile::from_csr(&csr, &assignment).unwrap();
        prop_assert_eq!((tiles.rows(), tiles.cols(), tiles.nnz()), (csr.rows(), csr.cols(), csr.nnz()));
        prop_assert!(tiles.to_csr().unwrap().bitwise_eq(&csr));
        // What the builder makes passes every check and is what the arrays say.
        let parts = tiles.clone().into_parts();
        let checked = RsTile::try_from_parts(parts).unwrap();
        prop_assert!(checked.to_csr().unwrap().bitwise_eq(&csr));
        for row in 0..csr.rows() {
            let id = u32::try_from(row).unwrap();
            let stored = csr.row_len(row) > 0;
            let in_tiles = stored && assignment.path(row) == RowPath::Tile;
            prop_assert_eq!(tiles.window_rows().contains(&id), in_tiles);
            prop_assert_eq!(tiles.residual().rows().contains(&id), stored && !in_tiles);
        }
    }

    #[test]
    fn one_path_for_all_leaves_the_other_part_empty((csr, _) in assigned(150)) {
        let tiles = RsTile::from_csr(&csr, &RowAssignment::all_tile(csr.rows()).unwrap()).unwrap();
        prop_assert_eq!((tiles.residual().nnz(), tiles.residual().buckets().len()), (0, 0));
        let residual = RsTile::from_csr(&csr, &RowAssignment::all_residual(csr.rows()).unwrap()).unwrap();
        prop_assert_eq!((residual.windows(), residual.tiles(), residual.values().len()), (0, 0, 0));
        prop_assert!(residual.to_csr().unwrap().bitwise_eq(&tiles.to_csr().unwrap()));
        let lens: Vec<_> = residual.residual().rows_iter().map(|(row, cols, _)| (cols.len(), row)).collect();
        prop_assert!(lens.is_sorted());
    }

    #[test]
    fn order_changes_windows_but_not_the_matrix((csr, assignment) in assigned(200), seed in any::<u64>()) {
        let mut order: Vec<u32> = (0..u32::try_from(csr.rows()).unwrap()).collect();
        order.sort_by_key(|&row| (u64::from(row) + 1).wrapping_mul(seed | 1));
        let order = Permutation::try_from_new_to_old(order).unwrap();
        let tiles = RsTile::from_csr_in_order(&csr, &assignment, &order).unwrap();
        prop_assert!(tiles.to_csr().unwrap().bitwise_eq(&csr));
        let mut places = tiles.window_rows().iter().filter(|&&row| row != NO_ROW).map(|&row| order.to_new(row as usize));
        prop_assert!(places.by_ref().is_sorted());
        prop_assert!(RsTile::try_from_parts(tiles.into_parts()).is_ok());
    }

    #[test]
    fn sources_lead_back_to_the_entries((csr, assignment) in assigned(200), other in any::<u32>()) {
        let mut tiles = RsTile::from_csr(&csr, &assignment).unwrap();
        let sources = tiles.entry_sources(&csr).unwrap();
        let gathered = |sources: &[u64]| -> Vec<u32> {
            sources.iter().map(|&entry| csr.values()[usize::try_from(entry).unwrap()].to_bits()).collect()
        };
        prop_assert_eq!(gathered(sources.tile()), to_bits(tiles.values()));
        prop_assert_eq!(gathered(sources.residual()), to_bits(tiles.residual().values()));
        let mut all = [sources.tile(), sources.residual()].concat();
        all.sort_unstable();
        prop_assert!(all.into_iter().eq(0..csr.nnz() as u64));

        let changed = csr.map_values(|value| f32::from_bits(value.to_bits() ^ other));
        tiles.replace_values(&sources, changed.values()).unwrap();
        prop_assert!(tiles.to_csr().unwrap().bitwise_eq(&changed));
    }

    /// Arrays of any numbers are refused or make a matrix that converts back; nothing panics.
    #[test]
    fn noise_never_panics(
        (csr, assignment) in assigned(80),
        array in 0..9usize,
        at in any::<prop::sample::Index>(),
        noise in any::<u64>(),
        small_noise in prop_oneof![0..50u32, any::<u32>()],
    ) {
        let mut parts = RsTile::from_csr(&csr, &assignment).unwrap().into_parts();
        let narrow = |list: &mut Vec<u32>| if !list.is_empty() { *at.get_mut(list) = small_noise };
        let wide = |list: &mut Vec<u64>| if !list.is_empty() { *at.get_mut(list) = noise };
        match array {
            0 => narrow(&mut parts.window_rows),
            1 => narrow(&mut parts.window_tiles),
            2 => narrow(&mut parts.tile_cols),
            3 => wide(&mut parts.bitmaps),
            4 => wide(&mut parts.tile_values),
            5 => narrow(&mut parts.residual_rows),
            6 => narrow(&mut parts.residual_col_indices),
            _ if parts.residual_buckets.is_empty() => {}
            7 => at.get_mut(&mut parts.residual_buckets).first_entry = noise,
            _ => at.get_mut(&mut parts.residual_buckets).rows = small_noise,
        }
        if let Ok(tiles) = RsTile::try_from_parts(parts) {
            prop_assert_eq!(tiles.to_csr().unwrap().nnz(), tiles.nnz());
        }
    }
}
