//! Sparse matrices of which each rank has some rows.

use std::path::Path;

use windrow_formats::io::read_csr;
use windrow_formats::{Coo, Csr, Value};

use super::communicator::Communicator;
use super::ownership::Ownership;
use crate::error::DistError;
use crate::num::narrow;

/// A sparse matrix of which each rank of a group has the rows that it owns.
///
/// Rows of the dense operand are owned, too, as [`columns`](Self::columns) says: those of a square matrix as its rows
/// are, so that a result is an operand of the next product.
///
/// # Examples
/// ```
/// use windrow::Csr;
/// use windrow::dist::{Communicator, DistCsr};
///
/// let a = Csr::<f32>::identity(5)?;
/// for rank in Communicator::threads(1)? {
///     let part = DistCsr::of(&rank, &a)?;
///     assert_eq!((part.local().rows(), part.rows().rows()), (5, 5));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct DistCsr<V: Value> {
    rank: usize,
    rows: Ownership,
    columns: Ownership,
    local: Csr<V>,
}

impl<V: Value> DistCsr<V> {
    /// This rank's rows of a matrix that every rank has, with [balanced](Ownership::balanced) work.
    ///
    /// # Errors
    /// As for [`with_ownership`](Self::with_ownership).
    pub fn of(communicator: &Communicator, a: &Csr<V>) -> Result<Self, DistError> {
        let [rows, columns] = balanced(a, communicator.size());
        Self::with_ownership(communicator, a, rows, columns)
    }

    /// This rank's rows of a matrix that every rank has, with given owners of its rows and of those of `B`.
    ///
    /// # Errors
    /// - [`DistError::Division`] if the owners are of another number of rows or ranks;
    /// - [`DistError::Disagreement`] if ranks have other matrices or owners;
    /// - those of [`Communicator::all_gather`].
    pub fn with_ownership(
        communicator: &Communicator,
        a: &Csr<V>,
        rows: Ownership,
        columns: Ownership,
    ) -> Result<Self, DistError> {
        communicator.told(Self::part(communicator, a, rows, columns))
    }

    fn part(
        communicator: &Communicator,
        a: &Csr<V>,
        rows: Ownership,
        columns: Ownership,
    ) -> Result<Self, DistError> {
        check_owners(communicator, "rows", &rows, a.rows())?;
        check_owners(communicator, "columns", &columns, a.cols())?;
        communicator.agree("rows, columns and entries", &(a.rows(), a.cols(), a.nnz()))?;
        communicator.agree("who owns what", &(&rows, &columns))?;
        let rank = communicator.rank();
        let local = a.row_block(rows.range(rank))?;
        Ok(Self { rank, rows, columns, local })
    }

    /// This rank's rows of the matrix in a file, in any format that [`read_csr`] reads, with
    /// [balanced](Ownership::balanced) work. Rank 0 alone reads it, and needs the memory for all of it; the others get
    /// their rows from it.
    ///
    /// # Errors
    /// - [`DistError::Read`] on rank 0 if the file cannot be read, which the others get as [`DistError::RankFailed`];
    /// - those of [`scattered`](Self::scattered).
    pub fn read(communicator: &Communicator, path: impl AsRef<Path>) -> Result<Self, DistError> {
        let read = || {
            let whole = (communicator.rank() == 0).then(|| read_csr(path)).transpose();
            whole.map_err(|error| DistError::Read { reason: error.to_string() })
        };
        Self::scattered(communicator, communicator.told(read())?.as_ref())
    }

    /// This rank's rows of a matrix that rank 0 has, with [balanced](Ownership::balanced) work: `whole` is that matrix
    /// there, and nothing on the other ranks, which get their rows from it.
    ///
    /// # Errors
    /// - [`DistError::Disagreement`] if rank 0 has none, or another rank has one, too;
    /// - those of [`Communicator::all_gather`].
    pub fn scattered(communicator: &Communicator, whole: Option<&Csr<V>>) -> Result<Self, DistError> {
        communicator.told(Self::dealt(communicator, whole))
    }

    fn dealt(communicator: &Communicator, whole: Option<&Csr<V>>) -> Result<Self, DistError> {
        communicator.agree("type of the values", &V::NAME)?;
        let rank = communicator.rank();
        let mut owners = communicator.all_gather(&whole.map(|a| balanced(a, communicator.size())))?;
        let others = owners.split_off(1);
        let unasked = others.iter().position(Option::is_some).map(|other| (other + 1, "one"));
        let (Some([rows, columns]), None) = (owners.pop().flatten(), unasked) else {
            let (other, theirs) = unasked.unwrap_or((0, "none"));
            return Err(DistError::Disagreement {
                what: "the whole matrix, which rank 0 alone gives",
                rank: other,
                theirs: theirs.to_owned(),
                own_rank: rank,
                own: if whole.is_some() { "one" } else { "none" }.to_owned(),
            });
        };
        let local = match whole {
            Some(a) => {
                for to in communicator.others() {
                    let part = a.row_block(rows.range(to))?;
                    communicator.send_slice(to, part.row_offsets());
                    communicator.send_slice(to, part.col_indices());
                    communicator.send_slice(to, part.values());
                }
                a.row_block(rows.range(rank))?
            }
            None => {
                let offsets = communicator.receive_vec(0)?;
                let (indices, values) = (communicator.receive_vec(0)?, communicator.receive_vec(0)?);
                Csr::try_from_parts(rows.range(rank).len(), columns.rows(), offsets, indices, values)?
            }
        };
        Ok(Self { rank, rows, columns, local })
    }

    /// A matrix that no rank has as a whole: the rows of each follow those of the one before. `columns` says who owns
    /// which rows of `B`; without it that is as rows of the matrix are owned, if it is square, else evenly.
    ///
    /// # Errors
    /// As for [`with_ownership`](Self::with_ownership).
    pub fn from_local(
        communicator: &Communicator,
        local: Csr<V>,
        columns: Option<Ownership>,
    ) -> Result<Self, DistError> {
        communicator.told(Self::joined(communicator, local, columns))
    }

    fn joined(
        communicator: &Communicator,
        local: Csr<V>,
        columns: Option<Ownership>,
    ) -> Result<Self, DistError> {
        communicator.agree("columns", &local.cols())?;
        let rows = Ownership::of_lengths(&communicator.all_gather(&local.rows())?);
        let columns = match columns {
            Some(columns) => columns,
            None if rows.rows() == local.cols() => rows.clone(),
            None => Ownership::even(local.cols(), communicator.size()),
        };
        check_owners(communicator, "columns", &columns, local.cols())?;
        communicator.agree("who owns the rows of B", &columns)?;
        Ok(Self { rank: communicator.rank(), rows, columns, local })
    }

    /// Who owns which rows.
    #[must_use]
    pub fn rows(&self) -> &Ownership {
        &self.rows
    }

    /// Who owns which rows of `B`, one for each column.
    #[must_use]
    pub fn columns(&self) -> &Ownership {
        &self.columns
    }

    /// The rows of this rank, with the columns of the whole matrix.
    #[must_use]
    pub fn local(&self) -> &Csr<V> {
        &self.local
    }

    /// Number of the rank whose rows these are.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The transposed matrix, whose rows are owned as the columns of this one: what a backward pass multiplies by. Each
    /// entry goes to the owner of its column.
    ///
    /// # Errors
    /// Those of [`Communicator::all_gather`]; of formats, where memory runs out.
    pub fn transpose(&self, communicator: &Communicator) -> Result<Self, DistError> {
        communicator.told(self.transposed(communicator))
    }

    fn transposed(&self, communicator: &Communicator) -> Result<Self, DistError> {
        let first_row = narrow(self.rows.range(self.rank).start);
        // For each rank: column, row and value of the entries in its columns.
        let mut columns = vec![Vec::<[u32; 2]>::new(); communicator.size()];
        let mut values = vec![Vec::<V>::new(); communicator.size()];
        for (row, (of_row, row_values)) in (first_row..).zip(self.local.rows_iter()) {
            for (&column, &value) in of_row.iter().zip(row_values) {
                let owner = self.columns.owner(column as usize);
                let start = narrow(self.columns.range(owner).start);
                columns[owner].push([column - start, row]);
                values[owner].push(value);
            }
        }
        for to in communicator.others() {
            communicator.send_slice(to, &columns[to]);
            communicator.send_slice(to, &values[to]);
        }
        let places = communicator.with_others(std::mem::take(&mut columns[self.rank]))?.concat();
        let found = communicator.with_others(std::mem::take(&mut values[self.rank]))?.concat();
        let (own, others) = places.into_iter().map(|[column, row]| (column, row)).unzip();
        let coo = Coo::try_new(self.columns.range(self.rank).len(), self.rows.rows(), own, others, found)?;
        Ok(Self {
            rank: self.rank,
            rows: self.columns.clone(),
            columns: self.rows.clone(),
            local: Csr::try_from_coo(&coo)?,
        })
    }
}

/// Owners of a matrix's rows and of those of `B`, with balanced work: the same of a square one.
fn balanced<V: Value>(a: &Csr<V>, ranks: usize) -> [Ownership; 2] {
    let rows = Ownership::balanced(a, ranks);
    let columns = if a.rows() == a.cols() { rows.clone() } else { Ownership::even(a.cols(), ranks) };
    [rows, columns]
}

/// Whether owners are of so many rows, and of the ranks of the group.
fn check_owners(
    communicator: &Communicator,
    what: &'static str,
    owned: &Ownership,
    wanted_len: usize,
) -> Result<(), DistError> {
    let (len, parts, wanted_parts) = (owned.rows(), owned.ranks(), communicator.size());
    if (len, parts) == (wanted_len, wanted_parts) {
        return Ok(());
    }
    Err(DistError::Division { what, len, parts, wanted_len, wanted_parts })
}
