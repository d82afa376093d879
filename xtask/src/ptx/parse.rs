//! Reading PTX text: functions, their parameters and instructions.

use crate::failure::{Failure, Result};
use std::fmt;

/// A PTX module, without comments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ptx {
    /// In the order of the text.
    pub items: Vec<Item>,
}

/// A piece of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    /// A directive, a variable or whatever else stands outside functions.
    Line(String),
    /// A function or entry without a body.
    Declaration(Function),
    /// A function or entry with a body.
    Definition(Function),
}

/// Whether the host can launch it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FunctionKind {
    /// A kernel that the host can start: `.entry`.
    Entry,
    /// `.func`: called from a kernel.
    Func,
}

/// A kernel, or a function that kernels call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    /// Whether the host can start it.
    pub kind: FunctionKind,
    /// The symbol by which the driver finds it.
    pub name: String,
    /// From the linkage to the closing parenthesis, and the directives that follow it.
    pub signature: Vec<String>,
    /// From `{` to `}`; empty in a declaration.
    pub body: Vec<String>,
}

impl Ptx {
    /// Reads a module as LLVM writes it. Comments and blank lines are dropped: comments carry block numbers
    /// and loop depths that differ between compilers for the same code.
    ///
    /// # Errors
    /// If a function's name cannot be found or its body never ends.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut lines = text.lines().map(without_comment).filter(|line| !line.trim().is_empty());
        let mut items = Vec::new();
        while let Some(line) = lines.next() {
            let Some(kind) = function_kind(line) else {
                items.push(Item::Line(line.to_owned()));
                continue;
            };
            let mut signature = vec![line.to_owned()];
            let mut open = ends_signature(line);
            while open.is_none() {
                let next = lines
                    .next()
                    .ok_or_else(|| Failure::new(format!("PTX ends inside the signature `{line}`")))?;
                open = ends_signature(next);
                if open != Some(Opens::Body) {
                    signature.push(next.to_owned());
                }
            }
            let name = function_name(&signature)
                .ok_or_else(|| Failure::new(format!("no function name in `{}`", signature.join(" "))))?;
            if open == Some(Opens::Nothing) {
                items.push(Item::Declaration(Function { kind, name, signature, body: Vec::new() }));
                continue;
            }
            let mut body = vec!["{".to_owned()];
            let mut depth = 1_usize;
            while depth > 0 {
                let next = lines
                    .next()
                    .ok_or_else(|| Failure::new(format!("PTX ends inside the body of {name}")))?;
                for c in next.chars() {
                    match c {
                        '{' => depth += 1,
                        '}' => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                }
                body.push(next.to_owned());
            }
            items.push(Item::Definition(Function { kind, name, signature, body }));
        }
        Ok(Self { items })
    }

    /// The functions that have a body and are of this kind.
    pub(crate) fn definitions(&self, kind: FunctionKind) -> impl Iterator<Item = &Function> {
        self.items.iter().filter_map(move |item| match item {
            Item::Definition(function) if function.kind == kind => Some(function),
            _ => None,
        })
    }
}

impl fmt::Display for Ptx {
    /// The module as text that `ptxas` and the driver accept; reading it again gives the same module.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for item in &self.items {
            match item {
                Item::Line(line) => writeln!(f, "{line}")?,
                Item::Declaration(function) | Item::Definition(function) => {
                    writeln!(f)?;
                    for line in function.signature.iter().chain(&function.body) {
                        writeln!(f, "{line}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// How a signature ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opens {
    Body,
    Nothing,
}

fn ends_signature(line: &str) -> Option<Opens> {
    match line.trim_end().chars().last() {
        Some('{') => Some(Opens::Body),
        Some(';') => Some(Opens::Nothing),
        _ => None,
    }
}

fn function_kind(line: &str) -> Option<FunctionKind> {
    let mut words = line
        .split_whitespace()
        .skip_while(|word| matches!(*word, ".visible" | ".extern" | ".weak" | ".common"));
    match words.next() {
        Some(".entry") => Some(FunctionKind::Entry),
        Some(".func") => Some(FunctionKind::Func),
        _ => None,
    }
}

/// The name follows `.entry` or `.func`, or the parenthesised result of a `.func`.
fn function_name(signature: &[String]) -> Option<String> {
    let text = signature.join(" ");
    let at = text.find(".entry").map(|at| at + ".entry".len());
    let at = at.or_else(|| text.find(".func").map(|at| at + ".func".len()))?;
    let mut rest = text[at..].trim_start();
    if rest.starts_with('(') {
        rest = rest[rest.find(')')? + 1..].trim_start();
    }
    super::tokens(rest).next().map(str::to_owned)
}

/// The line up to `//`, which never stands inside a string in PTX that LLVM writes.
fn without_comment(line: &str) -> &str {
    line.split_once("//").map_or(line, |(code, _)| code).trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
//
// Generated by LLVM NVPTX Back-End
//

.version 7.0
.target sm_80
.address_size 64

\t// .globl\tscale
.extern .func  (.param .b32 func_retval0) helper
(
\t.param .b32 helper_param_0
)
;
.visible .entry scale(
\t.param .align 8 .b8 scale_param_0[24]
)
{
\t.reg .b32 \t%r<2>;
// %bb.0:
\t{ .reg .b32 tmp; mov.b64 {tmp, %r1}, %rd1; }
\tret;
                                        // -- End function
}
";

    #[test]
    fn reads_declarations_and_bodies() {
        let ptx = Ptx::parse(SAMPLE).expect("the sample is well formed");
        assert_eq!(ptx.items.len(), 5);
        let Item::Declaration(helper) = &ptx.items[3] else { panic!("{:?}", ptx.items[3]) };
        assert_eq!((helper.name.as_str(), helper.kind), ("helper", FunctionKind::Func));
        let entries: Vec<_> = ptx.definitions(FunctionKind::Entry).collect();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].name, "scale");
        assert_eq!(entries[0].body.len(), 5, "{:?}", entries[0].body);
    }

    #[test]
    fn writing_and_reading_again_gives_the_same() {
        let ptx = Ptx::parse(SAMPLE).expect("the sample is well formed");
        let text = ptx.to_string();
        assert!(!text.contains("//"), "{text}");
        assert_eq!(Ptx::parse(&text).expect("our own text"), ptx);
    }

    #[test]
    fn a_body_without_end_is_an_error() {
        let error = Ptx::parse(".visible .entry cut(\n)\n{\n\tret;\n").expect_err("no closing brace");
        assert!(error.to_string().contains("body of cut"), "{error}");
    }
}
