//! `windrow doctor`: what this machine can run, and what to do about the rest.

use std::fmt;

use serde::Serialize;
use windrow::dist::Transport;
use windrow::internal::{Arch, ENTRIES, MODULES};
use windrow::synthetic::SplitMix64;
use windrow::{
    Algorithm, Coo, Csr, Device, DeviceKind, Element, KernelModule, Precision, Spmm, with_element,
};
use windrow_bench::measure::BenchError;
use windrow_bench::measure::peers::{CuBlas, CuSparse};

use crate::args::DoctorArgs;
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::machine;
use crate::product::{MadeOf, run_and_verify, verdict};
use crate::units;

/// Rows and columns of the test matrix, and the width of `B`.
const TEST_SIZE: u32 = 1000;
const TEST_WIDTH: usize = 72;

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// As it should be.
    Ok,
    /// Not there, and windrow works without it.
    Missing,
    /// There, and not working.
    Broken,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    name: &'static str,
    status: Status,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// What `windrow doctor` prints, and writes with `--json`.
#[derive(Debug, Serialize)]
struct Diagnosis {
    device: Option<String>,
    usable: bool,
    findings: Vec<Finding>,
    modules: Vec<KernelModule>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.status {
            Status::Ok => "ok",
            Status::Missing => "--",
            Status::Broken => "!!",
        };
        write!(f, "{mark}  {:<9}  {}", self.name, self.found.replace('\n', &format!("\n{:15}", "")))?;
        match &self.remedy {
            Some(remedy) => write!(f, "\n{:15}remedy: {remedy}", ""),
            None => Ok(()),
        }
    }
}

/// Collects findings and writes each as soon as it is known: the next one may take a while.
struct Examination {
    console: Console,
    findings: Vec<Finding>,
}

impl Examination {
    fn add(&mut self, name: &'static str, status: Status, found: impl Into<String>) -> Result<()> {
        self.add_with_remedy(name, status, found, None)
    }

    fn add_with_remedy(
        &mut self,
        name: &'static str,
        status: Status,
        found: impl Into<String>,
        remedy: Option<&str>,
    ) -> Result<()> {
        let remedy = remedy.map(str::to_owned);
        let finding = Finding { name, status, found: found.into(), remedy };
        self.console.line(&finding)?;
        self.findings.push(finding);
        Ok(())
    }
}

pub(crate) fn run(args: &DoctorArgs, console: Console) -> Result<()> {
    let mut examination = Examination { console, findings: Vec::new() };
    examination.add(
        "windrow",
        Status::Ok,
        format!("{} for {}", env!("CARGO_PKG_VERSION"), machine::target()),
    )?;
    processor(&mut examination)?;
    driver(&mut examination)?;
    kernels(&mut examination)?;
    gpus(&mut examination)?;
    let spinner = console.spinner("opening the device");
    let device = args.device.open();
    spinner.finish_and_clear();
    let mut modules = Vec::new();
    let outcome = device.map_err(Failure::from).and_then(|device| {
        peers(&mut examination, &device)?;
        link(&mut examination, &device)?;
        modules = compile(&mut examination, &device)?;
        let outcome = test(&mut examination, &device);
        outcome.map(|()| device)
    });
    let diagnosis = Diagnosis {
        device: outcome.as_ref().ok().map(ToString::to_string),
        usable: outcome.is_ok(),
        findings: examination.findings,
        modules,
    };
    if let Some(device) = &diagnosis.device {
        console.line(format_args!("windrow computes on {device}"))?;
    }
    console.object("doctor", &diagnosis)?;
    outcome.map(|_| ())
}

fn processor(examination: &mut Examination) -> Result<()> {
    let cpu = Device::cpu();
    let features = machine::features();
    let features = if features.is_empty() { String::new() } else { format!("; {}", features.join(", ")) };
    examination.add("processor", Status::Ok, format!("{}{features}", cpu.name()))?;
    if let (Some(total), Ok(Some(free))) = (cpu.memory_total(), cpu.memory_free()) {
        let found = format!("{}, {} available", units::bytes(total), units::bytes(free));
        examination.add("memory", Status::Ok, found)?;
    }
    Ok(())
}

/// The driver, or at which step one gets lost on the way to it.
fn driver(examination: &mut Examination) -> Result<()> {
    match Device::cuda_driver_version() {
        Ok(Some((major, minor))) => {
            let version = machine::kernel_module().map_or(String::new(), |version| format!("{version}, "));
            examination.add("driver", Status::Ok, format!("{version}supports CUDA {major}.{minor}"))
        }
        Ok(None) => {
            let clue = machine::why_no_driver();
            let status = if clue.gpu_present { Status::Broken } else { Status::Missing };
            examination.add_with_remedy("driver", status, clue.found, Some(clue.remedy))
        }
        Err(error) => examination.add_with_remedy(
            "driver",
            Status::Broken,
            error.to_string(),
            Some("reboot after a driver update, or reinstall the driver; `nvidia-smi` should list the GPU"),
        ),
    }
}

/// The kernels that this program carries.
fn kernels(examination: &mut Examination) -> Result<()> {
    let mut any = false;
    for arch in Arch::ALL {
        let modules: Vec<_> = MODULES.iter().filter(|module| module.arch() == arch).collect();
        let Some(first) = modules.first() else { continue };
        any = true;
        let text = first.text().unwrap_or_default();
        let word = |key: &str| text.lines().find_map(|line| line.trim().strip_prefix(key)).map(str::trim);
        match (word(".version"), word(".target")) {
            (Some(version), Some(target)) => {
                let entries = |name| ENTRIES.iter().filter(move |e| e.module == name && arch.holds(e.arch));
                let found = format!(
                    "PTX {version} for {target}: {} entry points in {} modules, {} packed into {}",
                    modules.iter().flat_map(|module| entries(module.name())).count(),
                    modules.len(),
                    units::bytes(modules.iter().map(|module| module.bytes() as u64).sum()),
                    units::bytes(modules.iter().map(|module| module.packed_bytes() as u64).sum()),
                );
                examination.add("kernels", Status::Ok, found)?;
            }
            _ => {
                let found = format!("the PTX for {arch} is broken");
                let remedy = "run `cargo xtask build-ptx` and build again";
                examination.add_with_remedy("kernels", Status::Broken, found, Some(remedy))?;
            }
        }
    }
    if !any {
        let remedy =
            "build it with windrow's feature `cuda`; if that is on, run `cargo xtask build-ptx` first";
        let found = "this program was built without kernels for GPUs";
        examination.add_with_remedy("kernels", Status::Broken, found, Some(remedy))?;
    }
    Ok(())
}

/// Has the GPU's driver compile every module of kernels, and says how long each took.
fn compile(examination: &mut Examination, device: &Device) -> Result<Vec<KernelModule>> {
    if device.kind() != DeviceKind::Cuda {
        examination.add("compile", Status::Missing, "nothing: no driver compiles kernels for the CPU")?;
        return Ok(Vec::new());
    }
    let spinner = examination.console.spinner("compiling the kernels");
    let outcome = device.load_kernels();
    spinner.finish_and_clear();
    let modules = device.kernel_modules();
    for module in &modules {
        let (name, time) = (module.name, units::time_us(1e3 * module.milliseconds));
        let found =
            format!("{time:>10}  {name}, {} for {}", entry_points(module.entries), module.architecture);
        examination.add("compile", Status::Ok, found)?;
    }
    let sum: f64 = modules.iter().map(|module| module.milliseconds).sum();
    let found = format!("{:>10}  all {} modules", units::time_us(1e3 * sum), modules.len());
    examination.add("compile", if outcome.is_ok() { Status::Ok } else { Status::Broken }, found)?;
    if let Err(error) = outcome {
        examination.add("compile", Status::Broken, error.to_string())?;
        return Err(error.into());
    }
    Ok(modules)
}

fn entry_points(count: usize) -> String {
    format!("{count} entry point{}", if count == 1 { "" } else { "s" })
}

fn gpus(examination: &mut Examination) -> Result<()> {
    let count = match Device::cuda_count() {
        Ok(count) => count,
        Err(error) => return examination.add("gpus", Status::Broken, error.to_string()),
    };
    if count == 0 {
        return examination.add("gpus", Status::Missing, "none; windrow computes on the CPU");
    }
    for index in 0..count {
        match Device::cuda(index) {
            Ok(gpu) => examination.add("gpu", Status::Ok, describe(&gpu))?,
            Err(error) => examination.add("gpu", Status::Broken, format!("cuda:{index}: {error}"))?,
        }
    }
    Ok(())
}

fn describe(gpu: &Device) -> String {
    let mut text = gpu.to_string();
    if let Some((major, minor)) = gpu.compute_capability() {
        text.push_str(&format!(", compute capability {major}.{minor}"));
    }
    text.push_str(&format!(", {} multiprocessors", gpu.multiprocessors()));
    if let Some(l2) = gpu.l2_bytes() {
        text.push_str(&format!(", L2 {}", units::bytes(l2)));
    }
    if let (Some(total), Ok(Some(free))) = (gpu.memory_total(), gpu.memory_free()) {
        text.push_str(&format!(", memory {} of {} free", units::bytes(free), units::bytes(total)));
    }
    text
}

/// The libraries that `spmm --peers` compares with; nothing needs them.
fn peers(examination: &mut Examination, device: &Device) -> Result<()> {
    if device.kind() != DeviceKind::Cuda {
        return Ok(());
    }
    let found = [
        ("cuSPARSE", CuSparse::load(device).map(|library| library.version().to_owned())),
        ("cuBLAS", CuBlas::load(device).map(|library| library.version().to_owned())),
    ];
    for (name, version) in found {
        match version {
            Ok(version) => examination.add(name, Status::Ok, format!("{version}, to compare with"))?,
            Err(error) => {
                let status =
                    if matches!(error, BenchError::Absent { .. }) { Status::Missing } else { Status::Broken };
                examination.add(name, status, format!("{error}; only `spmm --peers` needs it"))?;
            }
        }
    }
    Ok(())
}

/// What brings rows from this GPU to others.
fn link(examination: &mut Examination, device: &Device) -> Result<()> {
    if device.kind() != DeviceKind::Cuda {
        return Ok(());
    }
    match Transport::link_of(device) {
        Ok(name) => {
            let version = name.trim_start_matches("NCCL ");
            examination.add("NCCL", Status::Ok, format!("{version}, for several GPUs"))
        }
        Err(reason) => {
            examination.add("NCCL", Status::Missing, format!("{reason}; only several GPUs at once need it"))
        }
    }
}

/// Multiplies on `device` with every algorithm and precision, checked.
fn test(examination: &mut Examination, device: &Device) -> Result<()> {
    let a = test_matrix()?;
    let algorithms: &[Algorithm] =
        if device.kind() == DeviceKind::Cpu { &[Algorithm::Auto] } else { &Algorithm::ALL };
    let mut outcome = Ok(());
    for precision in Precision::ALL {
        for &algorithm in algorithms.iter().filter(|algorithm| algorithm.supports(precision)) {
            let what = match device.kind() {
                DeviceKind::Cpu => precision.to_string(),
                _ => format!("{precision} {algorithm}"),
            };
            match product(&a, precision, algorithm, device) {
                Ok(found) if found.passed() => {
                    examination.add("test", Status::Ok, format!("{what}: {}", verdict(&found)))?;
                }
                Ok(found) => {
                    let remedy = "the device computes wrongly: update the driver, and report this with the device's name";
                    let found = format!("{what}: {}", verdict(&found));
                    examination.add_with_remedy("test", Status::Broken, found, Some(remedy))?;
                    let failure = Failure::new(Exit::Verification, format!("{device} computes wrongly"));
                    outcome = outcome.and(Err(failure));
                }
                Err(failure) => {
                    examination.add("test", Status::Broken, format!("{what}: {failure}"))?;
                    outcome = outcome.and(Err(failure));
                }
            }
        }
    }
    outcome
}

fn product(
    a: &Csr<f32>,
    precision: Precision,
    algorithm: Algorithm,
    device: &Device,
) -> Result<windrow::Verification> {
    let plan = Spmm::builder(a).width(TEST_WIDTH).precision(precision).algorithm(algorithm).build(device)?;
    let b = MadeOf::Seed { width: TEST_WIDTH, seed: 1 };
    with_element!(precision, T => run_and_verify::<T, <T as Element>::Sum>(&plan, a, b))
}

/// Rows of 0 to 15 entries, and one that is nearly full.
fn test_matrix() -> Result<Csr<f32>> {
    let mut random = SplitMix64::new(1);
    let (mut rows, mut cols, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..TEST_SIZE {
        let entries = if row == TEST_SIZE / 2 { TEST_SIZE } else { random.below(16) };
        for _ in 0..entries {
            rows.push(row);
            cols.push(random.below(TEST_SIZE));
            let quarters: i16 = i16::try_from(random.below(17)).map_or(0, |number| number - 8);
            values.push(f32::from(quarters) / 4.0);
        }
    }
    let size = TEST_SIZE as usize;
    Ok(Csr::try_from_coo(&Coo::try_new(size, size, rows, cols, values)?)?)
}
