//! Entry points: measuring a GPU.

use crate::gather_probe::GatherProbe;

entries! {
    Probe:
    @from Sm80:
    probe {
        gather_probe => GatherProbe,
    }
}
