//! Entry points: dense operations of training.

use crate::training::{Adam, ColumnSums, CrossEntropy, NormalizeRows, NormalizeRowsGrad, Pointwise};

entries! {
    Training:
    @from Sm80:
    training {
        training_pointwise => Pointwise,
        training_cross_entropy => CrossEntropy,
        training_normalize_rows => NormalizeRows,
        training_normalize_rows_grad => NormalizeRowsGrad,
        training_column_sums => ColumnSums,
        training_adam => Adam,
    }
}
