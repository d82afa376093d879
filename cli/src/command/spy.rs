//! `windrow spy`: a picture of where the entries are, before and after reordering.

use std::io::Write;
use std::path::Path;

use serde::Serialize;
use windrow::io::{printable, read_permutation, replace_file};
use windrow::memory::try_with_room;
use windrow::reorder::Options;
use windrow::{Csr, Permutation, Structure};

use crate::args::SpyArgs;
use crate::args::plan::RowOrder;
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::output::Output;
use crate::spy::svg::{Panel, Picture};
use crate::units::{bytes, count, digits};
use crate::{load, ordering};

/// What `windrow spy` prints, and writes with `--json`.
#[derive(Debug, Serialize)]
struct Drawn {
    file: String,
    output: String,
    /// Rows and columns of cells in each panel.
    cells: (usize, usize),
    rows_a_cell: f64,
    cols_a_cell: f64,
    panels: Vec<Order>,
    /// Size of the picture.
    bytes: u64,
}

/// One panel: the order of its rows, and what the rows of a window share in it.
#[derive(Debug, Serialize)]
struct Order {
    order: String,
    column_vectors: u64,
    nnz_per_vector: f64,
}

pub(crate) fn run(args: &SpyArgs, console: Console) -> Result<()> {
    let order = match &args.order {
        Some(RowOrder::File(path)) => Some(path.as_path()),
        _ => None,
    };
    let inputs: Vec<&Path> = [&*args.file].into_iter().chain(order).collect();
    let output = Output::of(&args.out, &inputs, console)?;
    let (a, _) = load::read::<f32>(&args.file, &args.read, console)?;
    if args.symmetric && a.rows() != a.cols() {
        let message = format!(
            "--symmetric is for square matrices; {} has {} rows and {} columns",
            printable(&args.file),
            count(a.rows()),
            count(a.cols())
        );
        return Err(Failure::usage(message));
    }
    let mut orders = vec![Order::of("its own", &a)?];
    let mut matrices = vec![a];
    if let Some(order) = &args.order {
        let a = &matrices[0];
        let permutation = match order {
            RowOrder::Method(method) => {
                let options = Options { method: *method, ..Options::default() };
                ordering::find(a, &options, console)?.permutation
            }
            RowOrder::File(path) => given(path, a.rows())?,
        };
        let (name, by_rows) = (order.to_string(), a.permute_rows(&permutation)?);
        // What a plan gathers follows from the order of the rows; that of the columns is for the picture alone.
        let labelled = Order::of(&name, &by_rows)?;
        let drawn = if args.symmetric { permute_columns(&by_rows, &permutation)? } else { by_rows };
        orders.push(labelled);
        matrices.push(drawn);
    }
    let panels: Vec<Panel<'_, f32>> = orders
        .iter()
        .zip(&matrices)
        .map(|(order, matrix)| Panel { matrix, labels: order.labels() })
        .collect();
    let picture = Picture::of(&title(args, &matrices[0]), &panels, usize::from(args.cells));
    let write = |writer: &mut (dyn Write + Send)| Ok(writer.write_all(picture.text.as_bytes())?);
    output.write(|path| replace_file(path, write), write)?;
    let drawn = Drawn {
        file: args.file.display().to_string(),
        output: output.name(),
        cells: picture.cells,
        rows_a_cell: picture.places.0,
        cols_a_cell: picture.places.1,
        panels: orders,
        bytes: picture.text.len() as u64,
    };
    console.summary(output, drawn.text())?;
    console.object("spy", &drawn)
}

/// The order in the file at `path`, for a matrix of `rows` rows.
fn given(path: &Path, rows: usize) -> Result<Permutation> {
    let order = read_permutation(path)?;
    ordering::fits(&order, rows, printable(path))?;
    Ok(order)
}

/// `a` with the columns in this order.
fn permute_columns(a: &Csr<f32>, permutation: &Permutation) -> Result<Csr<f32>> {
    Ok(a.transpose()?.permute_rows(permutation)?.transpose()?)
}

/// The name of the picture, for those who cannot see it.
fn title(args: &SpyArgs, a: &Csr<f32>) -> String {
    let name = args.file.file_name().map_or_else(|| "a matrix".into(), |name| name.to_string_lossy());
    format!(
        "Where {name} has its {} entries: {} rows, {} columns",
        count(a.nnz()),
        count(a.rows()),
        count(a.cols())
    )
}

impl Order {
    /// Windows are of rows with entries, as a plan forms them.
    fn of(name: &str, a: &Csr<f32>) -> Result<Self> {
        let filled = (0..a.rows()).filter(|&row| a.row_len(row) > 0);
        let empty = (0..a.rows()).filter(|&row| a.row_len(row) == 0);
        let mut rows = try_with_room(a.rows(), "an order")?;
        for row in filled.chain(empty) {
            let beyond = |_| Failure::new(Exit::Limit, "more rows than 32-bit indices can number");
            rows.push(u32::try_from(row).map_err(beyond)?);
        }
        let structure = Structure::of(&a.permute_rows(&Permutation::try_from_new_to_old(rows)?)?);
        Ok(Self {
            order: name.to_owned(),
            column_vectors: structure.column_vectors,
            nnz_per_vector: structure.nnz_per_vector(),
        })
    }

    /// What is written below the panel.
    fn labels(&self) -> Vec<String> {
        vec![
            format!("order of rows: {}", self.order),
            format!("{:.2} entries a column vector", self.nnz_per_vector),
        ]
    }
}

impl Drawn {
    fn text(&self) -> String {
        let Self { cells: (high, wide), rows_a_cell, cols_a_cell, .. } = self;
        format!(
            "{}: {} panel(s) of {high} × {wide} cells of {} × {} places, {}",
            self.output,
            self.panels.len(),
            digits(*rows_a_cell),
            digits(*cols_a_cell),
            bytes(self.bytes)
        )
    }
}
