//! Where a source file can be changed, and into what: rules of syntax.

use crate::failure::{Context, Result};
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Stmt};

/// A change to one place of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Site {
    /// Bytes of the file that are replaced.
    pub(super) range: Range<usize>,
    /// The line on which they begin, from 1.
    pub(super) line: usize,
    /// What stands there instead.
    pub(super) mutated: String,
    /// Whether it is a statement, with its semicolon, that is left out: `mutated` is empty then.
    pub(super) statement: bool,
}

/// All changes that the rules make of a file: they swap operators and methods of like type, negate conditions, raise
/// whole numbers by one, and leave out calls whose result nobody uses, barriers among them.
///
/// Tests, macros' arguments, patterns and whatever is computed at compile time are left alone.
///
/// # Errors
/// If the file is no Rust.
pub(super) fn sites(path: &str, text: &str) -> Result<Vec<Site>> {
    let file = syn::parse_file(text).context(path)?;
    let mut finder = Finder { text, sites: Vec::new() };
    finder.visit_file(&file);
    Ok(finder.sites)
}

struct Finder<'a> {
    text: &'a str,
    sites: Vec<Site>,
}

impl Finder<'_> {
    fn text_of(&self, node: &impl Spanned) -> &str {
        &self.text[node.span().byte_range()]
    }

    fn add(&mut self, node: &impl Spanned, mutated: String, statement: bool) {
        let span = node.span();
        self.sites.push(Site { range: span.byte_range(), line: span.start().line, mutated, statement });
    }

    /// The node with one part of it replaced.
    fn with(&self, node: &impl Spanned, part: &impl Spanned, replacement: &str) -> String {
        let (node, part) = (node.span().byte_range(), part.span().byte_range());
        [&self.text[node.start..part.start], replacement, &self.text[part.end..node.end]].concat()
    }
}

/// Whether an attribute says that the item is for tests only, or that it is a test.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_test = |list: &syn::MetaList| {
            list.tokens.to_string().split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
        };
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg") && attribute.meta.require_list().is_ok_and(is_test))
    })
}

/// The operator that is like another and is not it.
fn other_operator(operator: &BinOp) -> Option<&'static str> {
    Some(match operator {
        BinOp::Lt(_) => "<=",
        BinOp::Le(_) => "<",
        BinOp::Gt(_) => ">=",
        BinOp::Ge(_) => ">",
        BinOp::Eq(_) => "!=",
        BinOp::Ne(_) => "==",
        BinOp::Add(_) | BinOp::Div(_) => {
            if matches!(operator, BinOp::Add(_)) {
                "-"
            } else {
                "*"
            }
        }
        BinOp::Sub(_) => "+",
        BinOp::Mul(_) => "+",
        BinOp::Rem(_) => "/",
        BinOp::And(_) => "||",
        BinOp::Or(_) => "&&",
        BinOp::BitAnd(_) => "|",
        BinOp::BitOr(_) | BinOp::BitXor(_) => "&",
        BinOp::Shl(_) => ">>",
        BinOp::Shr(_) => "<<",
        BinOp::AddAssign(_) => "-=",
        BinOp::SubAssign(_) => "+=",
        BinOp::MulAssign(_) => "+=",
        BinOp::BitOrAssign(_) => "&=",
        BinOp::BitAndAssign(_) => "|=",
        _ => return None,
    })
}

/// Methods that are alike, in pairs.
const METHODS: [(&str, &str); 10] = [
    ("min", "max"),
    ("any", "all"),
    ("is_some", "is_none"),
    ("is_ok", "is_err"),
    ("first", "last"),
    ("saturating_sub", "wrapping_add"),
    ("wrapping_add", "wrapping_sub"),
    ("leading_zeros", "trailing_zeros"),
    ("take_while", "skip_while"),
    ("sync_block", "sync_warp"),
];

fn other_method(name: &str) -> Option<&'static str> {
    METHODS.iter().find_map(|&(a, b)| if a == name { Some(b) } else { (b == name).then_some(a) })
}

/// Whether an expression binds a name, which a copy of it cannot do elsewhere.
fn binds(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => binds(&binary.left) || binds(&binary.right),
        _ => false,
    }
}

/// Whether it is a call whose result is not used.
fn is_call(expression: &Expr) -> bool {
    match expression {
        Expr::Call(_) | Expr::MethodCall(_) => true,
        Expr::Try(tried) => is_call(&tried.expr),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Trait(item) => &item.attrs,
            _ => return, // types, constants, macros
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if function.sig.constness.is_none() {
            self.visit_block(&function.block);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if function.sig.constness.is_none() && !is_for_tests(&function.attrs) {
            self.visit_block(&function.block);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let (None, Some(block)) = (&function.sig.constness, &function.default) {
            self.visit_block(block);
        }
    }

    // Computed at compile time, or no expressions.
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}
    fn visit_angle_bracketed_generic_arguments(&mut self, _: &'ast syn::AngleBracketedGenericArguments) {}

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(expression, Some(_)) = statement
            && is_call(expression)
        {
            self.add(statement, String::new(), true);
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if let Some(other) = other_operator(&binary.op)
            && !binds(&binary.left)
            && !binds(&binary.right)
        {
            self.add(binary, self.with(binary, &binary.op, other), false);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if let Some(other) = other_method(&call.method.to_string()) {
            self.add(call, self.with(call, &call.method, other), false);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_if(&mut self, conditional: &'ast syn::ExprIf) {
        if !binds(&conditional.cond) {
            self.add(&conditional.cond, format!("!({})", self.text_of(&conditional.cond)), false);
        }
        visit::visit_expr_if(self, conditional);
    }

    fn visit_expr_lit(&mut self, literal: &'ast syn::ExprLit) {
        if let syn::Lit::Int(number) = &literal.lit
            && let Ok(value) = number.base10_parse::<u64>()
            && let Some(more) = value.checked_add(1)
        {
            self.add(literal, format!("{more}{}", number.suffix()), false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(text: &str) -> Vec<(String, String)> {
        let sites = sites("test.rs", text).expect("it is Rust");
        sites.into_iter().map(|site| (text[site.range.clone()].to_owned(), site.mutated)).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|&(from, to)| (from.to_owned(), to.to_owned())).collect()
    }

    #[test]
    fn every_rule_finds_its_place() {
        let text =
            "fn f(s: &S, a: u32) -> u32 { /* ≤ */ s.sync_warp(); if a < s.n { return a.min(7); } a + s.m }";
        assert_eq!(
            changes(text),
            pairs(&[
                ("s.sync_warp();", ""),
                ("s.sync_warp()", "s.sync_block()"),
                ("a < s.n", "!(a < s.n)"),
                ("a < s.n", "a <= s.n"),
                ("a.min(7)", "a.max(7)"),
                ("7", "8"),
                ("a + s.m", "a - s.m"),
            ])
        );
    }

    #[test]
    fn what_is_constant_or_a_test_stays() {
        let text = "const A: u32 = 1 + 2; const fn f() -> u32 { 1 } #[test] fn g() { f(); } \
                    #[cfg(test)] mod t { fn h() { f(); } } #[cfg(all(test, unix))] impl T { fn i() { f(); } } \
                    fn j() { match k { 1 => [0u8; 4], _ => m::<3>(n!(1 + 1)) } }";
        // The repeated element is no constant.
        assert_eq!(changes(text), pairs(&[("0u8", "1u8")]));
    }

    #[test]
    fn bindings_are_not_copied() {
        assert_eq!(changes("fn f() { if let Some(a) = b && c {} }"), []);
    }
}
