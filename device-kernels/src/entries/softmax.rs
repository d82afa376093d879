//! Entry points: softmax over rows.

use crate::row_softmax::{EightLanes, RowSoftmax, RowSoftmaxGrad, WholeBlock};

entries! {
    Softmax:
    @from Sm80:
    softmax {
        row_softmax_short => RowSoftmax<EightLanes>,
        row_softmax_long => RowSoftmax<WholeBlock>,
    }
    softmax_grad {
        row_softmax_grad_short => RowSoftmaxGrad<EightLanes>,
        row_softmax_grad_long => RowSoftmaxGrad<WholeBlock>,
    }
}
