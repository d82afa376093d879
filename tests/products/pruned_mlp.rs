//! The network of the example `pruned_mlp`, with weights from a small file: exact where sums are, within the error
//! bound elsewhere.

use std::fs::File;
use std::path::PathBuf;

use crate::example::gemm::{DenseMath, Gemm};
use crate::example::mlp::{Mlp, relative_error};
use windrow::io::{DenseTensor, write_tensors};
use windrow::{
    Activation, DenseRef, Device, DeviceMatrix, Element, NmPattern, Precision, bf16, f16,
    synthetic::SplitMix64,
};

/// Sizes that are no multiples of a group or a vector.
const WIDTH: usize = 70;
const HIDDEN: usize = 150;
const ROWS: usize = 37;

/// A file that is removed at the end.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("windrow-{}-{name}.safetensors", std::process::id())))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // What stays behind is in the folder for temporary files.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Whole numbers in −`most` ..= `most`.
fn integers(len: usize, most: u32, rng: &mut SplitMix64) -> Vec<f32> {
    let number = |rng: &mut SplitMix64| f64::from(rng.below(2 * most + 1)) - f64::from(most);
    (0..len).map(|_| <f32 as windrow::Value>::from_f64(number(rng))).collect()
}

/// Layers of small whole numbers: sums are exact in f32, and what is between the layers in f16, too.
fn exact_file(name: &str) -> TemporaryFile {
    let rng = &mut SplitMix64::new(5);
    let mut tensor =
        |name: &str, rows, cols| DenseTensor::new(name, rows, cols, integers(rows * cols, 2, rng)).unwrap();
    let tensors = [
        tensor("up.weight", HIDDEN, WIDTH),
        tensor("up.bias", 1, HIDDEN),
        tensor("down.weight", WIDTH, HIDDEN),
        tensor("down.bias", 1, WIDTH),
        tensor("gate.weight", HIDDEN, WIDTH),
        tensor("gate.bias", 1, HIDDEN),
    ];
    let file = TemporaryFile::new(name);
    write_tensors(File::create(&file.0).unwrap(), &tensors).unwrap();
    file
}

fn pattern() -> NmPattern {
    NmPattern::new(2, 8, 32).unwrap()
}

fn upload<E: Element<Sum = f32>>(elements: &[f32]) -> DeviceMatrix<E> {
    let rounded: Vec<E> = elements.iter().map(|&x| E::from_f32(x)).collect();
    DeviceMatrix::upload(&Device::cpu(), DenseRef::packed(&rounded, ROWS, WIDTH).unwrap()).unwrap()
}

/// What the pruned network gives, verified.
fn pruned<E: Element<Sum = f32>>(mlp: &Mlp, precision: Precision, x: &[f32]) -> (Vec<f32>, Mlp) {
    let pruned = mlp.pruned(pattern(), (&Device::cpu(), precision, ROWS)).unwrap();
    let mut buffers = pruned.buffers(upload::<E>(x)).unwrap();
    pruned.forward(&mut buffers).unwrap();
    for (layer, check) in pruned.verify(&buffers).unwrap() {
        assert!(check.passed(), "{layer}, {precision}: {check}");
    }
    (buffers.y.download().unwrap(), mlp.as_pruned(&pruned).unwrap())
}

#[test]
fn whole_numbers_give_the_pruned_dense_product_exactly() {
    let file = exact_file("exact");
    let mlp = Mlp::read(&file.0, ["up", "down"], None, Activation::Relu).unwrap();
    assert_eq!((mlp.up.weight.rows(), mlp.up.weight.cols()), (WIDTH, HIDDEN));
    let x = integers(ROWS * WIDTH, 2, &mut SplitMix64::new(6));
    let gemm = Gemm::new(&Device::cpu().stream(), DenseMath::F32).unwrap();
    let (got, as_pruned) = pruned::<f32>(&mlp, Precision::F32, &x);
    assert_eq!(got, as_pruned.forward(&gemm, &upload(&x)).unwrap());
    for (precision, other) in [
        (Precision::Tf32, pruned::<f32>(&mlp, Precision::Tf32, &x).0),
        (Precision::F16, pruned::<f16>(&mlp, Precision::F16, &x).0),
        (Precision::Bf16, pruned::<bf16>(&mlp, Precision::Bf16, &x).0),
    ] {
        assert_eq!(got, other, "{precision}");
    }
    // The dense weights give something else: a quarter of them is left.
    let of_dense = relative_error(&got, &mlp.forward(&gemm, &upload(&x)).unwrap());
    assert!((0.1..2.0).contains(&of_dense), "{of_dense}");
}

#[test]
fn made_up_layers_are_within_their_bounds() {
    let file = TemporaryFile::new("made-up");
    Mlp::write_made_up(&file.0, WIDTH, HIDDEN, 9).unwrap();
    let mlp = Mlp::read(&file.0, ["up", "down"], None, Activation::Gelu).unwrap();
    let mut rng = SplitMix64::new(7);
    let x: Vec<f32> = integers(ROWS * WIDTH, 1000, &mut rng).into_iter().map(|x| x / 1000.0).collect();
    let gemm = Gemm::new(&Device::cpu().stream(), DenseMath::F32).unwrap();
    let near = |precision: Precision, (got, as_pruned): (Vec<f32>, Mlp), most: f64| {
        let error = relative_error(&got, &as_pruned.forward(&gemm, &upload(&x)).unwrap());
        assert!(error < most, "{precision}: {error}");
    };
    near(Precision::F32, pruned::<f32>(&mlp, Precision::F32, &x), 1e-6);
    near(Precision::Tf32, pruned::<f32>(&mlp, Precision::Tf32, &x), 2e-3);
    near(Precision::F16, pruned::<f16>(&mlp, Precision::F16, &x), 2e-3);
    near(Precision::Bf16, pruned::<bf16>(&mlp, Precision::Bf16, &x), 2e-2);
}

/// `down(silu(gate(x)) ⊙ up(x))`, and with ReLU of whole numbers, where it is exact.
#[test]
fn gated_layers() {
    let file = exact_file("gated");
    let x = integers(ROWS * WIDTH, 2, &mut SplitMix64::new(10));
    let gemm = Gemm::new(&Device::cpu().stream(), DenseMath::F32).unwrap();
    let mlp = Mlp::read(&file.0, ["up", "down"], Some("gate"), Activation::Relu).unwrap();
    let (got, as_pruned) = pruned::<f32>(&mlp, Precision::F32, &x);
    assert_eq!(got, as_pruned.forward(&gemm, &upload(&x)).unwrap());
    let ungated = Mlp { gate: None, ..mlp.clone() };
    assert_ne!(got, pruned::<f32>(&ungated, Precision::F32, &x).0);

    let file = TemporaryFile::new("made-up-gate");
    Mlp::write_made_up(&file.0, WIDTH, HIDDEN, 11).unwrap();
    let mlp = Mlp::read(&file.0, ["up", "down"], Some("gate"), Activation::Silu).unwrap();
    let x: Vec<f32> = x.into_iter().map(|x| x / 2.0).collect();
    let error = |(got, as_pruned): (Vec<f32>, Mlp)| {
        relative_error(&got, &as_pruned.forward(&gemm, &upload(&x)).unwrap())
    };
    let f32_error = error(pruned::<f32>(&mlp, Precision::F32, &x));
    let f16_error = error(pruned::<f16>(&mlp, Precision::F16, &x));
    let bf16_error = error(pruned::<bf16>(&mlp, Precision::Bf16, &x));
    assert!(
        f32_error < 1e-6 && f16_error < 3e-3 && bf16_error < 3e-2,
        "{f32_error} {f16_error} {bf16_error}"
    );
}

#[test]
fn a_pattern_that_keeps_everything_is_the_dense_network() {
    let file = exact_file("everything");
    let mlp = Mlp::read(&file.0, ["up", "down"], None, Activation::Relu).unwrap();
    let x = integers(ROWS * WIDTH, 2, &mut SplitMix64::new(8));
    let all = NmPattern::new(4, 4, 16).unwrap();
    let pruned = mlp.pruned(all, (&Device::cpu(), Precision::F32, ROWS)).unwrap();
    let mut buffers = pruned.buffers(upload::<f32>(&x)).unwrap();
    pruned.forward(&mut buffers).unwrap();
    let gemm = Gemm::new(&Device::cpu().stream(), DenseMath::F32).unwrap();
    assert_eq!(buffers.y.download().unwrap(), mlp.forward(&gemm, &upload(&x)).unwrap());
}

#[test]
fn layers_that_do_not_fit_are_refused() {
    let file = exact_file("misfit");
    let message = |layers| Mlp::read(&file.0, layers, None, Activation::Relu).unwrap_err().to_string();
    assert_eq!(
        message(["up", "up"]),
        format!("the first layer gives {HIDDEN} numbers, the second takes {WIDTH}")
    );
    assert!(
        message(["gates", "down"])
            .contains("a tensor `gates.weight`, found none of that name, but `up.weight`")
    );
    let error = Mlp::read(&file.0, ["up", "down"], Some("down"), Activation::Silu).unwrap_err().to_string();
    assert_eq!(error, format!("the gate is {HIDDEN} × {WIDTH}, the first layer {WIDTH} × {HIDDEN}"));
}
