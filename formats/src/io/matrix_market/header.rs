//! The header line, the comments and the size line.

use super::super::blocks::TextSource;
use super::super::line::{Fault, Line, Token, excerpt};
use super::super::report::{Field, Header, Layout, ReadReport, Symmetry};
use super::super::{ReadError, ReadOptions};

/// First word of the file, in any case.
pub(in super::super) const BANNER: &[u8] = b"%%MatrixMarket";

/// What stands before the entries.
#[derive(Debug, Clone, Copy)]
pub(super) struct MatrixHeader {
    pub(super) layout: Layout,
    pub(super) field: Field,
    pub(super) symmetry: Symmetry,
    pub(super) rows: u32,
    pub(super) cols: u32,
    /// Entries that the file spells out, as the size line says or, for arrays, implies.
    pub(super) entries: u64,
    /// The line that says so, from 1.
    pub(super) size_line: u64,
}

impl MatrixHeader {
    pub(super) fn report(&self) -> ReadReport {
        let Self { layout, field, symmetry, .. } = *self;
        ReadReport::new(Header::MatrixMarket { layout, field, symmetry })
    }

    /// Why there must be [`Self::entries`] entries, for messages.
    fn promise(&self) -> String {
        let what = match self.layout {
            Layout::Coordinate => "says",
            Layout::Array => "makes for this symmetry",
        };
        format!("{} entries, as line {} {what}", self.entries, self.size_line)
    }

    /// The error for one entry too many, in line `line`.
    pub(super) fn too_many(&self, line: u64) -> ReadError {
        Fault::new(1, format!("the end of the file after {}", self.promise()), "another entry").at_line(line)
    }

    /// The error for a file that ends after `found` entries, with its last line.
    pub(super) fn too_few(&self, found: u64, line: u64) -> ReadError {
        let found = format!("the end of the file after {found}");
        Fault::new(1, self.promise(), found).at_line(line + 1)
    }
}

/// Takes everything before the entries from `source`.
pub(super) fn read(
    source: &mut TextSource<'_>,
    options: &ReadOptions<'_>,
) -> Result<MatrixHeader, ReadError> {
    let line = loop {
        let line = source.take_line()?.unwrap_or_default();
        if line.is_empty() || Line::new(&line).token().is_some() {
            break line;
        }
    };
    let line_number = source.lines_taken().max(1);
    let (layout, field, symmetry) = words(&line, line_number)?;
    let size = loop {
        let Some(line) = source.take_line()? else {
            let expected = format!("the size line ({})", size_words(layout));
            return Err(Fault::new(1, expected, "the end of the file").at_line(source.lines_taken() + 1));
        };
        match Line::new(&line).token() {
            Some(token) if token.bytes[0] != b'%' => break line,
            _ => {}
        }
    };
    let size_line = source.lines_taken();
    let header = MatrixHeader { layout, field, symmetry, rows: 0, cols: 0, entries: 0, size_line };
    sizes(&size, header, options)
}

fn size_words(layout: Layout) -> &'static str {
    match layout {
        Layout::Coordinate => "rows, columns, entries",
        Layout::Array => "rows, columns",
    }
}

/// A word of the header, in lower case.
fn word<'a>(line: &mut Line<'a>, expected: &'static str) -> Result<(String, Token<'a>), Fault> {
    let token = line.expect(|| expected.to_owned())?;
    Ok((String::from_utf8_lossy(token.bytes).to_ascii_lowercase(), token))
}

/// The meaning of the header line.
fn words(text: &[u8], line_number: u64) -> Result<(Layout, Field, Symmetry), ReadError> {
    let fault = |fault: Fault| fault.at_line(line_number);
    let unsupported = |token: Token<'_>, what: &str, remedy| ReadError::Unsupported {
        place: format!("line {line_number}, column {}", token.column),
        what: format!("{what} ({})", excerpt(token.bytes)),
        remedy,
    };
    let mut line = Line::new(text);
    let banner = line.expect(|| "`%%MatrixMarket`".to_owned()).map_err(fault)?;
    if !banner.bytes.eq_ignore_ascii_case(BANNER) {
        return Err(fault(banner.fault("`%%MatrixMarket`")));
    }

    let (object, token) = word(&mut line, "`matrix`").map_err(fault)?;
    match object.as_str() {
        "matrix" => {}
        "vector" => {
            let remedy = "write it as a matrix with one column";
            return Err(unsupported(token, "the object vector", remedy));
        }
        _ => return Err(fault(token.fault("`matrix`"))),
    }

    const LAYOUTS: &str = "`coordinate` or `array`";
    let (layout, token) = word(&mut line, LAYOUTS).map_err(fault)?;
    let layout = match layout.as_str() {
        "coordinate" => Layout::Coordinate,
        "array" => Layout::Array,
        _ => return Err(fault(token.fault(LAYOUTS))),
    };

    const FIELDS: &str = "`real`, `integer` or `pattern`";
    let (field, token) = word(&mut line, FIELDS).map_err(fault)?;
    let field = match field.as_str() {
        "real" | "double" => Field::Real,
        "integer" | "unsigned-integer" => Field::Integer,
        "pattern" if layout == Layout::Array => {
            return Err(fault(token.fault("`real` or `integer`, since an array lists values")));
        }
        "pattern" => Field::Pattern,
        "complex" => {
            let remedy = "split it into its real and its imaginary part and read each as a real matrix";
            return Err(unsupported(token, "the field complex", remedy));
        }
        _ => return Err(fault(token.fault(FIELDS))),
    };

    const SYMMETRIES: &str = "`general`, `symmetric` or `skew-symmetric`";
    let (symmetry, token) = word(&mut line, SYMMETRIES).map_err(fault)?;
    let symmetry = match symmetry.as_str() {
        "general" => Symmetry::General,
        "symmetric" => Symmetry::Symmetric,
        "skew-symmetric" if field == Field::Pattern => {
            return Err(fault(token.fault("`general` or `symmetric`, since a pattern has no signs")));
        }
        "skew-symmetric" => Symmetry::SkewSymmetric,
        "hermitian" => {
            let remedy = "a real hermitian matrix is symmetric: write `symmetric`; split a complex one into \
                          its real and its imaginary part";
            return Err(unsupported(token, "the symmetry hermitian", remedy));
        }
        _ => return Err(fault(token.fault(SYMMETRIES))),
    };
    line.end().map_err(fault)?;
    Ok((layout, field, symmetry))
}

/// Fills in the sizes of `header` from the size line.
fn sizes(
    text: &[u8],
    mut header: MatrixHeader,
    options: &ReadOptions<'_>,
) -> Result<MatrixHeader, ReadError> {
    let fault = |fault: Fault| fault.at_line(header.size_line);
    let place = format!("line {}", header.size_line);
    let most = u64::from(u32::MAX);
    let mut line = Line::new(text);
    let rows = line.unsigned("the number of rows", 0..=most).map_err(fault)?;
    let mut second = line.clone();
    let cols = line.unsigned("the number of columns", 0..=most).map_err(fault)?;
    if header.symmetry != Symmetry::General && rows != cols {
        let expected = format!("as many columns as rows, {rows}, since the matrix is symmetric");
        let token = second.expect(String::new).map_err(fault)?;
        return Err(fault(token.fault(expected)));
    }
    // At most 2^32 − 1 each, so no product overflows.
    header.entries = match (header.layout, header.symmetry) {
        (Layout::Coordinate, _) => line.unsigned("the number of entries", 0..=u64::MAX - 1).map_err(fault)?,
        (Layout::Array, Symmetry::General) => rows * cols,
        (Layout::Array, Symmetry::Symmetric) => rows * (rows + 1) / 2,
        (Layout::Array, Symmetry::SkewSymmetric) => rows * rows.saturating_sub(1) / 2,
    };
    line.end().map_err(fault)?;
    (header.rows, header.cols) = options.limits.check_shape(&place, rows, cols)?;
    options.limits.check_nnz(&place, header.entries)?;
    Ok(header)
}
