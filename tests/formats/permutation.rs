//! Permutations: the laws of a group, and the refusal of everything else.

use proptest::collection::vec;
use proptest::prelude::*;
use windrow_formats::{FormatError, Permutation};

fn orders(len: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Permutation> {
    vec(any::<u32>(), len).prop_map(|keys| {
        let mut order: Vec<u32> = (0..u32::try_from(keys.len()).unwrap()).collect();
        order.sort_by_key(|&i| keys[i as usize]);
        Permutation::try_from_new_to_old(order).unwrap()
    })
}

proptest! {
    #[test]
    fn inverse_undoes(order in orders(0..50)) {
        let identity = Permutation::identity(order.len()).unwrap();
        prop_assert_eq!(&order.compose(&order.inverse()).unwrap(), &identity);
        prop_assert_eq!(&order.inverse().compose(&order).unwrap(), &identity);
        prop_assert_eq!(&order.inverse().inverse(), &order);
        prop_assert!(identity.is_identity());
        for i in 0..order.len() {
            prop_assert_eq!(order.to_new(order.to_old(i)), i);
            prop_assert_eq!(order.inverse().to_old(i), order.to_new(i));
        }
        let items: Vec<String> = (0..order.len()).map(|i| i.to_string()).collect();
        prop_assert_eq!(order.inverse().apply(&order.apply(&items)), items);
    }

    #[test]
    fn composing_is_applying_in_turn((first, next) in (0..30usize).prop_flat_map(|n| (orders(n), orders(n)))) {
        let items: Vec<usize> = (0..first.len()).map(|i| 10 * i).collect();
        let composed = first.compose(&next).unwrap();
        prop_assert_eq!(composed.apply(&items), next.apply(&first.apply(&items)));
        prop_assert_eq!(composed.inverse(), next.inverse().compose(&first.inverse()).unwrap());
    }

    #[test]
    fn a_list_is_accepted_exactly_if_it_is_a_bijection(list in vec(0..7u32, 0..7)) {
        let mut sorted = list.clone();
        sorted.sort_unstable();
        let bijection = sorted.iter().copied().eq(0..u32::try_from(list.len()).unwrap());
        match Permutation::try_from_new_to_old(list.clone()) {
            Ok(order) => {
                prop_assert!(bijection);
                prop_assert_eq!(order.new_to_old(), list);
            }
            Err(FormatError::PermutationRange { position, found, len }) => {
                prop_assert!(!bijection && found as usize >= len);
                prop_assert_eq!((list[position], list.len()), (found, len));
            }
            Err(FormatError::PermutationDuplicate { position, found, first }) => {
                prop_assert!(!bijection && first < position);
                prop_assert_eq!((list[first], list[position]), (found, found));
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}
