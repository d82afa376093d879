//! What the lines of each suite hold.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Case, Reading, Time};
use crate::measure::L2;
use crate::suites::ablation::facts::{AblationFacts, Measurement, OtherFacts, PartFacts};
use crate::suites::attention::AttendedFacts;
use crate::suites::facts::{DeviceFacts, MatrixFacts, PeerFacts, TimeFacts};
use crate::suites::nm::NmFacts;
use crate::suites::plans::PlansFacts;
use crate::suites::preprocess::{Found, PreprocessFacts};
use crate::suites::record::{Record, SCHEMA};
use crate::suites::sddmm::SampledFacts;
use crate::suites::spmm::facts::SpmmFacts;
use crate::suites::tensor::facts::TensorFacts;
use crate::suites::tuned::facts::TunedFacts;

/// Epochs of the examples and of other libraries, which no suite of the program writes.
pub(super) const TRAINING: &str = "training";

/// What a line tells.
pub(super) struct Told {
    pub(super) readings: Vec<Reading>,
    /// Options that its case needs.
    pub(super) options: Vec<(&'static str, String)>,
}

/// A line of any suite. Those of older programs do not name theirs: then the fields that no other has tell.
pub(super) fn read(line: &str) -> Result<Told, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    match value.get("schema").and_then(Value::as_u64) {
        Some(version) if version == u64::from(SCHEMA) => {}
        Some(version) => {
            return Err(format!("version {version} of the lines' form, this program reads {SCHEMA}"));
        }
        None => return Err("missing field `schema`: no record".to_owned()),
    }
    let part = value.pointer("/facts/part").and_then(Value::as_str);
    let suite = match value.get("suite").and_then(Value::as_str) {
        Some(suite) => suite.to_owned(),
        None => match part {
            Some("preprocess") => "preprocess",
            Some(_) => "ablation",
            None => {
                let own = [
                    ("shape", "nm"),
                    ("tensor", "tensor"),
                    ("inner", "sddmm"),
                    ("tried", "tuned"),
                    ("epoch_ms", TRAINING),
                    ("path", "spmm"),
                ];
                own.iter().find(|(field, _)| value.get(field).is_some()).map_or("", |(_, suite)| suite)
            }
        }
        .to_owned(),
    };
    match suite.as_str() {
        "spmm" => of::<SpmmFacts>(value),
        "sddmm" => of::<SampledFacts>(value),
        "attention" => of::<AttendedFacts>(value),
        "nm" => of::<NmFacts>(value),
        "tensor" => of::<TensorFacts>(value),
        "ablation" => of::<PartFacts<AblationFacts>>(value),
        "preprocess" => of::<PartFacts<Found>>(value),
        "plans" => of::<PlansFacts>(value),
        "tuned" => of::<TunedFacts>(value),
        TRAINING => {
            serde_json::from_value::<Training>(value).map(|epoch| epoch.told()).map_err(|e| e.to_string())
        }
        "" => Err("a record of no suite of this program".to_owned()),
        other => Err(format!("a record of the suite {other}, which this program does not have")),
    }
}

fn of<F: Facts + DeserializeOwned>(value: Value) -> Result<Told, String> {
    let record: Record<F> = serde_json::from_value(value).map_err(|error| error.to_string())?;
    Ok(Told { readings: F::readings(&record), options: record.facts.options() })
}

/// What facts of a suite tell of their times.
trait Facts: Sized {
    fn readings(record: &Record<Self>) -> Vec<Reading>;

    fn options(&self) -> Vec<(&'static str, String)>;
}

/// A reading of a record, without a time.
fn untimed<F>(
    record: &Record<F>,
    suite: &'static str,
    matrix: &MatrixFacts,
    width: usize,
    path: impl Into<String>,
) -> Reading {
    Reading {
        case: Case {
            suite,
            matrix: matrix.name.clone(),
            checksum: matrix.checksum.clone(),
            width: Some(width),
            path: path.into(),
            device: record.device.name.clone(),
            l2: record.l2.state(),
        },
        revision: record.revision.clone(),
        machine: machine(&record.device),
        time: None,
        error: record.error.clone(),
        peers: Vec::new(),
        rows: matrix.rows,
        nnz: matrix.nnz,
        roofline: None,
        gathered_gbps: None,
        intensity: None,
    }
}

/// A device in words.
fn machine(device: &DeviceFacts) -> String {
    let driver = device.driver.as_ref().map_or_else(String::new, |driver| format!(", driver CUDA {driver}"));
    let units = if device.kind == "cuda" { "multiprocessors" } else { "threads" };
    format!("{}{driver}, {} {units}", device.name, device.multiprocessors)
}

impl Reading {
    fn with_time(self, time: Option<TimeFacts>) -> Self {
        let bounds = time.map(|time| time.bounds).unwrap_or_default();
        Self {
            time: time.map(|time| time.timing.into()),
            roofline: bounds.roofline_fraction,
            gathered_gbps: bounds.gathered_gbps,
            ..self
        }
    }

    fn with_peers<'a>(mut self, library: &str, peers: impl IntoIterator<Item = &'a PeerFacts>) -> Self {
        let timed =
            peers.into_iter().filter_map(|peer| Some((format!("{library} {}", peer.math), peer.median_us?)));
        self.peers.extend(timed);
        self
    }

    /// The time of a product that the facts tell of.
    fn measured(self, product: Option<&Measurement>) -> Option<Self> {
        let product = product?;
        let path = format!("{}{}", self.case.path, product.path);
        let error = self.error.clone().or_else(|| product.error.clone());
        let case = Case { path, ..self.case };
        Some(Self { case, time: product.time.map(Time::from), error, ..self })
    }
}

impl Facts for SpmmFacts {
    fn readings(record: &Record<Self>) -> Vec<Reading> {
        let facts = &record.facts;
        let reading = untimed(record, "spmm", &facts.matrix, facts.width, &facts.path).with_time(record.time);
        let reading = reading.with_peers("cuSPARSE", &facts.cusparse).with_peers("cuBLAS", &facts.cublas);
        vec![reading.with_peers("sprs", &facts.sprs)]
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        products(&self.values, self.width, Some(&self.path))
    }
}

impl Facts for SampledFacts {
    fn readings(record: &Record<Self>) -> Vec<Reading> {
        let facts = &record.facts;
        let reading =
            untimed(record, "sddmm", &facts.matrix, facts.inner, &facts.path).with_time(record.time);
        let roofline = facts.roofline_us.zip(reading.us()).map(|(bound, us)| bound / us).or(reading.roofline);
        vec![Reading { roofline, ..reading }.with_peers("cuSPARSE", &facts.cusparse)]
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        vec![("--inners", self.inner.to_string()), ("--paths", self.path.clone())]
    }
}

impl Facts for AttendedFacts {
    fn readings(record: &Record<Self>) -> Vec<Reading> {
        let facts = &record.facts;
        vec![untimed(record, "attention", &facts.matrix, facts.columns, &facts.path).with_time(record.time)]
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        vec![("--columns", self.columns.to_string()), ("--paths", self.path.clone())]
    }
}

impl Facts for NmFacts {
    fn readings(record: &Record<Self>) -> Vec<Reading> {
        let facts = &record.facts;
        let [n, m, l] = facts.pattern;
        let matrix = MatrixFacts::named(format!("{} {n}:{m}, {l}", facts.shape));
        let path = format!("{} {} {}", facts.precision, facts.layout, facts.packing);
        let mut reading = untimed(record, "nm", &matrix, 0, path).with_time(record.time);
        reading.case.width = None;
        reading.peers.extend(facts.dense_us.map(|us| ("cuBLAS dense".to_owned(), us)));
        // What a product reads of its weights.
        reading.rows = Some(facts.shape.m);
        reading.nnz = (facts.shape.k * facts.shape.n).checked_mul(n).map(|kept| kept / m.max(1));
        reading.intensity = facts.intensity().zip(facts.tflops);
        vec![reading]
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        let [n, m, l] = self.pattern;
        vec![
            ("--shapes", self.shape.to_string()),
            ("--patterns", format!("{n}:{m}")),
            ("--vectors", l.to_string()),
            ("--precisions", self.precision.clone()),
            ("--layouts", self.layout.clone()),
            ("--packings", self.packing.clone()),
        ]
    }
}

impl Facts for TensorFacts {
    fn readings(record: &Record<Self>) -> Vec<Reading> {
        let facts = &record.facts;
        let matrix = MatrixFacts { nnz: Some(facts.nnz), ..MatrixFacts::named(facts.tensor.clone()) };
        let path = format!("{} mode {}, {}, {}", facts.operation, facts.mode, facts.path, facts.determinism);
        let reading = untimed(record, "tensor", &matrix, facts.width, path).with_time(record.time);
        vec![Reading { rows: facts.dims.get(facts.mode).copied(), ..reading }]
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        vec![
            ("--operations", self.operation.to_string()),
            ("--modes", self.mode.to_string()),
            ("--widths", self.width.to_string()),
        ]
    }
}

impl Facts for PartFacts<AblationFacts> {
    fn readings(record: &Record<Self>) -> Vec<Reading> {
        let facts = &record.facts;
        let part = |path: String| untimed(record, "ablation", &facts.matrix, facts.width, path);
        let measured =
            |name: &str, product: &Option<Measurement>| part(name.to_owned()).measured(product.as_ref());
        let found: Vec<Option<Reading>> = match &facts.facts {
            None => vec![Some(part(String::new()))],
            Some(AblationFacts::Threshold(found)) => {
                vec![measured(&format!("threshold {} {}, ", found.rule, found.max_entries), &found.hybrid)]
            }
            Some(AblationFacts::Vectors(found)) => {
                vec![measured(&format!("vectors {}, ", found.threshold), &found.hybrid)]
            }
            Some(AblationFacts::Stream { tile_stream, window_each, .. }) => {
                vec![
                    measured("stream, dealt out, ", tile_stream),
                    measured("stream, a warp each, ", window_each),
                ]
            }
            Some(AblationFacts::Printed(found)) => {
                let other = |other: &OtherFacts| measured("printed, ", &other.product);
                let others = found.others.iter().map(other);
                [measured("printed, as built, ", &found.built)].into_iter().chain(others).collect()
            }
            Some(AblationFacts::Reorder(found)) => {
                vec![measured(&format!("order {}, ", found.order), &found.product)]
            }
            Some(AblationFacts::Bytes { .. }) => Vec::new(),
            Some(AblationFacts::Hybrid(found)) => vec![
                measured("hybrid, ", &found.hybrid),
                measured("hybrid's tiles, ", &found.tile_stream),
                measured("hybrid's rows, ", &found.row_split),
                measured("hybrid's short rows, ", &found.short_rows),
            ],
            Some(AblationFacts::Determinism(found)) => vec![
                measured("determinism, fixed order, ", &found.run_to_run),
                measured("determinism, any order, ", &found.any_order),
            ],
            Some(AblationFacts::Preprocess(found)) => {
                plans_made(found, &part).into_iter().map(Some).collect()
            }
        };
        found.into_iter().flatten().collect()
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        products(&self.values, self.width, None)
    }
}

impl Facts for PartFacts<Found> {
    fn readings(record: &Record<Self>) -> Vec<Reading> {
        let facts = &record.facts;
        let part = |path: String| untimed(record, "preprocess", &facts.matrix, facts.width, path);
        match &facts.facts {
            None => vec![part(String::new())],
            Some(Found::Preprocess(found)) => plans_made(found, &part),
        }
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        products(&self.values, self.width, None)
    }
}

/// A plan made on the CPU and, where a GPU makes it too, there.
fn plans_made(found: &PreprocessFacts, part: &dyn Fn(String) -> Reading) -> Vec<Reading> {
    let mut places = vec![("cpu", &found.cpu)];
    if found.place == "gpu" {
        places.push(("gpu", &found.gpu));
    }
    let of = |(place, times): (&str, &crate::suites::preprocess::PlaceFacts)| {
        let time =
            Time { us: times.us, noise: Some(times.noise), least_us: Some(times.min_us), most_us: None };
        let reading = Reading { time: Some(time), ..part(format!("{}, plan, {place}", found.path)) };
        match place {
            "gpu" => Reading { peers: vec![("the CPU".to_owned(), found.cpu.us)], ..reading },
            _ => reading,
        }
    };
    places.into_iter().map(of).collect()
}

impl Facts for PlansFacts {
    fn readings(record: &Record<Self>) -> Vec<Reading> {
        let facts = &record.facts;
        let of = |what: &str| {
            untimed(record, "plans", &facts.matrix, facts.width, format!("{}, {what}", facts.path))
        };
        let Some(plan) = &facts.plan else { return vec![of("first product")] };
        let timed = |what: &str, us: f64| Reading { time: Some(Time::median(us)), ..of(what) };
        let made = Time { least_us: Some(plan.plan_min_us), ..Time::median(plan.plan_us) };
        let mut first = timed("first product", plan.first_us);
        first.peers.extend(facts.cusparse.iter().map(|peer| ("cuSPARSE".to_owned(), peer.first_us)));
        vec![first, Reading { time: Some(made), ..of("plan") }, timed("product", plan.product_us)]
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        products(&self.values, self.width, Some(&self.path))
    }
}

impl Facts for TunedFacts {
    fn readings(record: &Record<Self>) -> Vec<Reading> {
        let facts = &record.facts;
        let of = |what: &str, us: Option<f64>| {
            let path = format!("{what}, {}, {}", facts.precision, facts.determinism);
            let reading = untimed(record, "tuned", &facts.matrix, facts.width, path);
            Reading { time: us.map(Time::median), ..reading }.with_peers("cuSPARSE", &facts.cusparse)
        };
        let mut readings = vec![of("default", facts.default_us)];
        readings.extend(facts.winner_us.map(|us| of("winner", Some(us))));
        readings
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        let mut options = products(&self.values, self.width, None);
        options.push(("--precision", self.precision.clone()));
        options
    }
}

/// Options that several suites have.
fn products(values: &str, width: usize, path: Option<&str>) -> Vec<(&'static str, String)> {
    let mut options = Vec::new();
    if !values.is_empty() {
        options.push(("--values", values.to_owned()));
    }
    options.push(("--widths", width.to_string()));
    options.extend(path.map(|path| ("--paths", path.to_owned())));
    options
}

/// An epoch of a graph neural network.
#[derive(Deserialize)]
struct Training {
    program: String,
    model: String,
    graph: String,
    precision: String,
    device: String,
    #[serde(default)]
    revision: String,
    epoch_ms: f64,
    entries: Option<usize>,
    nodes: Option<usize>,
    hidden: Option<usize>,
}

impl Training {
    fn told(self) -> Told {
        let case = Case {
            suite: TRAINING,
            matrix: self.graph,
            checksum: None,
            width: self.hidden,
            path: format!("{} {}, {}", self.model, self.precision, self.program),
            device: self.device,
            l2: L2::Warm,
        };
        let reading = Reading {
            machine: case.device.clone(),
            case,
            revision: self.revision,
            time: Some(Time::median(1e3 * self.epoch_ms)),
            error: None,
            peers: Vec::new(),
            rows: self.nodes,
            nnz: self.entries,
            roofline: None,
            gathered_gbps: None,
            intensity: None,
        };
        Told { readings: vec![reading], options: Vec::new() }
    }
}
