//! What is changed in, and refused from, the compiler's PTX.

use super::{Function, FunctionKind, Item, Ptx, tokens};
use crate::entries::EntrySpec;
use crate::failure::{Failure, Result};
use std::collections::{BTreeMap, BTreeSet};
use windrow_kernels::Arch;

/// Adds `.maxntid` and `.minnctapersm` to every entry: launch bounds cannot be written in Rust for this
/// target, and without them `ptxas` must keep registers for 1024 threads in reserve. Params of entries for compute
/// capability 9.0 alone begin at a multiple of 64 bytes, as tensor maps must; the compiler knows no alignment above 16.
///
/// # Errors
/// If the module, a text for `of`, lacks an entry of the table, or has one that the table lacks.
pub(crate) fn launch_bounds(ptx: &mut Ptx, entries: &[EntrySpec], of: Arch) -> Result<()> {
    let found: BTreeSet<&str> =
        ptx.definitions(FunctionKind::Entry).map(|entry| entry.name.as_str()).collect();
    let wanted: BTreeSet<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    if found != wanted {
        let list = |names: Vec<&&str>| names.into_iter().copied().collect::<Vec<_>>().join(", ");
        return Err(Failure::new(format!(
            "the compiled kernels and `windrow_kernels::ENTRIES` differ: missing from the PTX [{}], missing from \
             the table [{}]",
            list(wanted.difference(&found).collect()),
            list(found.difference(&wanted).collect()),
        )));
    }
    for item in &mut ptx.items {
        let Item::Definition(function) = item else { continue };
        let Some(entry) = entries.iter().find(|entry| entry.name == function.name) else { continue };
        if entry.arch == Arch::Sm90a {
            for line in &mut function.signature {
                *line = line.replacen(".param .align 8 ", ".param .align 64 ", 1);
            }
        }
        function.signature.push(format!(".maxntid {}, 1, 1", entry.block_threads));
        let blocks = if of == Arch::Sm80 { entry.min_blocks } else { entry.min_blocks_from_sm90 };
        if blocks > 0 {
            function.signature.push(format!(".minnctapersm {blocks}"));
        }
    }
    Ok(())
}

/// Drops the functions, declarations and constants that no entry reaches: the panic handler that a crate without
/// `std` must define although no kernel can panic, and the strings of tables that only the host reads.
pub(crate) fn prune_unreachable(ptx: &mut Ptx) {
    // The lines that a name brings in: a module is thousands of items, which are not walked for each of its names.
    let mut named: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut pending: Vec<&str> =
        ptx.definitions(FunctionKind::Entry).map(|entry| entry.name.as_str()).collect();
    for item in &ptx.items {
        match item {
            Item::Definition(function) => {
                let lines = function.body.iter().map(String::as_str);
                named.entry(&function.name).or_default().extend(lines);
            }
            Item::Line(line) => match private_constant(line) {
                Some(name) => named.entry(name).or_default().push(line),
                None => pending.extend(tokens(line)),
            },
            Item::Declaration(_) => {}
        }
    }
    let mut reached = BTreeSet::new();
    while let Some(name) = pending.pop() {
        if reached.insert(name.to_owned()) {
            pending.extend(named.get(name).into_iter().flatten().flat_map(|line| tokens(line)));
        }
    }
    ptx.items.retain(|item| match item {
        Item::Line(line) => private_constant(line).is_none_or(|name| reached.contains(name)),
        Item::Declaration(function) | Item::Definition(function) => reached.contains(&function.name),
    });
}

/// The module with these entries alone, and what they need.
pub(crate) fn only(ptx: &Ptx, entries: &[EntrySpec]) -> Ptx {
    let wanted = |item: &&Item| match item {
        Item::Definition(function) if function.kind == FunctionKind::Entry => {
            entries.iter().any(|entry| entry.name == function.name)
        }
        _ => true,
    };
    let mut part = Ptx { items: ptx.items.iter().filter(wanted).cloned().collect() };
    prune_unreachable(&mut part);
    part
}

/// The name of a variable that only this module can see.
fn private_constant(line: &str) -> Option<&str> {
    if !(line.starts_with(".global") || line.starts_with(".const")) {
        return None;
    }
    let declaration = line.split(['=', ';', '[']).next()?;
    declaration.split_whitespace().last()
}

/// Every function that is called and not in the module, with its callers: `(callee, callers)`. There is no
/// linker behind this build, so each of them would stop the driver from loading the module.
pub(crate) fn unresolved_calls(ptx: &Ptx) -> Vec<(String, Vec<String>)> {
    let defined: BTreeSet<&str> = ptx.items.iter().filter_map(definition).map(|f| f.name.as_str()).collect();
    let declared = ptx.items.iter().filter_map(|item| match item {
        Item::Declaration(function) if !defined.contains(function.name.as_str()) => Some(&function.name),
        _ => None,
    });
    declared
        .map(|callee| {
            let callers = ptx
                .items
                .iter()
                .filter_map(definition)
                .filter(|caller| caller.body.iter().any(|line| tokens(line).any(|token| token == callee)))
                .map(|caller| caller.name.clone())
                .collect();
            (callee.clone(), callers)
        })
        .collect()
}

fn definition(item: &Item) -> Option<&Function> {
    match item {
        Item::Definition(function) => Some(function),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: &str = "\
.version 7.0
.extern .func _RNvNtCsx_4core9panicking11panic_const_div_by_zero
(
\t.param .b64 p
)
;
.func unused(
)
{
\tret;
}
.func used(
)
{
\tcall.uni _RNvNtCsx_4core9panicking11panic_const_div_by_zero, (param0);
\tret;
}
.visible .entry scale(
\t.param .align 8 .b8 scale_param_0[24]
)
{
\tcall.uni
\tused,
\t(
\t);
\tret;
}
";

    fn spec(name: &str, min_blocks: u32) -> EntrySpec {
        EntrySpec { min_blocks, ..EntrySpec::sample(name) }
    }

    #[test]
    fn bounds_follow_the_parameters() {
        let entry = EntrySpec { min_blocks_from_sm90: 5, ..spec("scale", 4) };
        for (of, blocks) in [(Arch::Sm80, 4), (Arch::Sm90, 5)] {
            let mut ptx = Ptx::parse(CALLS).expect("well formed");
            launch_bounds(&mut ptx, std::slice::from_ref(&entry), of).expect("tables agree");
            let text = ptx.to_string();
            let expected = format!("\n)\n.maxntid 128, 1, 1\n.minnctapersm {blocks}\n{{\n");
            assert!(text.contains(&expected), "{text}");
        }
    }

    #[test]
    fn no_minimum_of_blocks_unless_asked() {
        let mut ptx = Ptx::parse(CALLS).expect("well formed");
        launch_bounds(&mut ptx, &[spec("scale", 0)], Arch::Sm80).expect("tables agree");
        assert!(!ptx.to_string().contains("minnctapersm"));
    }

    #[test]
    fn params_that_may_hold_a_tensor_map_are_aligned_for_it() {
        for (arch, expected) in [(Arch::Sm90, ".param .align 8 .b8"), (Arch::Sm90a, ".param .align 64 .b8")] {
            let mut ptx = Ptx::parse(CALLS).expect("well formed");
            launch_bounds(&mut ptx, &[EntrySpec { arch, ..spec("scale", 0) }], arch).expect("tables agree");
            assert!(ptx.to_string().contains(expected), "{ptx}");
        }
    }

    #[test]
    fn tables_that_differ_are_named() {
        let mut ptx = Ptx::parse(CALLS).expect("well formed");
        let error = launch_bounds(&mut ptx, &[spec("axpy", 0)], Arch::Sm80)
            .expect_err("neither has the other's entry");
        let text = error.to_string();
        assert!(text.contains("PTX [axpy]") && text.contains("table [scale]"), "{text}");
    }

    #[test]
    fn unreached_functions_go_and_reached_ones_stay() {
        let mut ptx = Ptx::parse(CALLS).expect("well formed");
        prune_unreachable(&mut ptx);
        let names: Vec<_> = ptx.items.iter().filter_map(definition).map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["used", "scale"]);
    }

    #[test]
    fn unreached_constants_go_and_reached_ones_stay() {
        let constants = ".global .align 1 .b8 anon_$_0[2] = {97, 98};\n\
                         .global .align 8 .u64 table[1] = {generic(anon_$_0)};\n\
                         .global .align 4 .b32 lone = 7;\n";
        let user = format!("{constants}{}", CALLS.replace("\tret;\n", "\tmov.u64 %rd1, table;\n\tret;\n"));
        let mut ptx = Ptx::parse(&user).expect("well formed");
        prune_unreachable(&mut ptx);
        let text = ptx.to_string();
        assert!(
            text.contains("anon_$_0[2]") && text.contains("table[1]") && !text.contains("lone"),
            "{text}"
        );
        let mut ptx = Ptx::parse(&format!("{constants}{CALLS}")).expect("well formed");
        prune_unreachable(&mut ptx);
        assert!(!ptx.to_string().contains(".global"));
    }

    #[test]
    fn a_part_has_its_entries_and_what_they_need() {
        let text = format!(
            "{CALLS}.global .align 4 .b32 lone = 7;\n\
             .visible .entry axpy(\n)\n{{\n\tmov.u64 %rd1, lone;\n\tret;\n}}\n"
        );
        let ptx = Ptx::parse(&text).expect("well formed");
        let names = |part: &Ptx| -> Vec<String> {
            part.items.iter().filter_map(definition).map(|function| function.name.clone()).collect()
        };
        let scale = only(&ptx, &[spec("scale", 0)]);
        assert_eq!(names(&scale), ["used", "scale"]);
        let axpy = only(&ptx, &[spec("axpy", 0)]);
        assert_eq!(names(&axpy), ["axpy"]);
        assert!(axpy.to_string().contains("lone") && !scale.to_string().contains("lone"));
        assert!([scale, axpy].iter().all(|part| part.to_string().contains(".version 7.0")));
    }

    #[test]
    fn an_unresolved_call_names_its_caller() {
        let ptx = Ptx::parse(CALLS).expect("well formed");
        let calls = unresolved_calls(&ptx);
        assert_eq!(calls.len(), 1);
        assert!(calls[0].0.contains("panic_const_div_by_zero"));
        assert_eq!(calls[0].1, ["used"]);
    }
}
