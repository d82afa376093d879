//! The training loop, and what it says.

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use serde_json::json;
use windrow::training::{Adam, CountedAdam, CrossEntropy, Outcome};
use windrow::{Csr, Device, DeviceMatrix};

use super::Result;
use super::capture::Graph;
use super::clock::Work;
use super::data::Task;
use super::lane::Lane;
use super::model::Model;
use super::options::Options;

/// Epochs that are profiled.
const PROFILED: usize = 10;

/// A model, what it is to learn, and the optimiser. Whatever it does ends before it is gone.
pub(crate) struct Training<M: Model> {
    pub(crate) model: M,
    loss: CrossEntropy,
    gradient: DeviceMatrix<f32>,
    optimiser: Optimiser,
    lane: Lane,
}

enum Optimiser {
    Adam(Adam),
    /// For a lane that may be captured.
    Counted(CountedAdam),
}

impl<M: Model> Training<M> {
    /// # Errors
    /// If the device refuses.
    pub(crate) fn new(model: M, task: &Task, device: &Device, learning_rate: f32) -> Result<Self> {
        let (adam, lane) = (Adam { learning_rate, ..Adam::default() }, model.lane().clone());
        let training = Self {
            model,
            loss: CrossEntropy::new(device, task.classes, &task.labels, &task.weights())?,
            gradient: DeviceMatrix::zeros(device, task.labels.len(), task.classes)?,
            optimiser: match lane.is_alone() {
                false => Optimiser::Adam(adam),
                true => Optimiser::Counted(CountedAdam::new(device, adam)?),
            },
            lane,
        };
        device.synchronize()?; // all is there, whatever the lane
        Ok(training)
    }

    /// Logits, loss and all gradients.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn gradients(&mut self) -> Result<()> {
        self.logits_and_loss()?;
        self.model.backward(&self.gradient)
    }

    fn logits_and_loss(&mut self) -> Result<()> {
        let (lane, logits) = (&self.lane, self.model.forward()?);
        Ok(self.loss.run_on(&lane.stream, lane.read(logits), lane.write(&mut self.gradient))?)
    }

    /// One pass over the graph, and a step of the optimiser. Work is queued.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn epoch(&mut self) -> Result<()> {
        self.gradients()?;
        let (lane, mut parameters) = (&self.lane, self.model.parameters().into_iter());
        match &mut self.optimiser {
            Optimiser::Adam(adam) => parameters.try_for_each(|parameter| parameter.step(lane, adam)),
            Optimiser::Counted(adam) => {
                let mut step = adam.begin_on(&lane.stream)?;
                parameters.try_for_each(|parameter| parameter.update(lane, &mut step))
            }
        }
    }

    /// An epoch as a graph, of a model that is alone in its stream and has had one already, which made what is made
    /// once.
    ///
    /// # Errors
    /// If the device is no GPU, or the epoch cannot be captured.
    pub(crate) fn capture(&mut self) -> Result<Graph> {
        let stream = self.lane.stream.clone();
        Graph::capture(&stream, || self.epoch())
    }

    /// Waits for what was queued.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn synchronize(&self) -> Result<()> {
        Ok(self.lane.stream.synchronize()?)
    }

    /// Loss and predictions with the parameters as they are.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn evaluate(&mut self) -> Result<Outcome> {
        self.logits_and_loss()?;
        Ok(self.loss.outcome()?)
    }

    /// What the last epoch found, with the parameters before its step.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn outcome(&self) -> Result<Outcome> {
        Ok(self.loss.outcome()?)
    }

    /// Milliseconds of each epoch; `told` is called with each epoch's number, outside of its time.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn run(
        &mut self,
        epochs: usize,
        told: impl FnMut(usize, &Self) -> Result<()>,
    ) -> Result<Vec<f64>> {
        self.run_each(epochs, Self::epoch, told)
    }

    /// The same by launches of a graph of an epoch of this training.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn run_captured(&mut self, epochs: usize, graph: &Graph) -> Result<Vec<f64>> {
        // SAFETY: the matrices are the training's, which outlives the work, and is borrowed meanwhile.
        self.run_each(epochs, |_| unsafe { graph.launch() }, |_, _| Ok(()))
    }

    fn run_each(
        &mut self,
        epochs: usize,
        mut epoch: impl FnMut(&mut Self) -> Result<()>,
        mut told: impl FnMut(usize, &Self) -> Result<()>,
    ) -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(epochs);
        for number in 1..=epochs {
            let start = Instant::now();
            epoch(self)?;
            self.synchronize()?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
            told(number, self)?;
        }
        Ok(times)
    }

    /// Milliseconds of an epoch with marks around its sparse work, and of each kind of that: means over a few epochs.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn profile(&mut self) -> Result<(f64, [f64; Work::ALL.len()])> {
        self.model.clock().turn_on();
        let times = self.run(PROFILED, |_, _| Ok(()))?;
        #[expect(clippy::cast_precision_loss, reason = "ten")]
        let epochs = PROFILED as f64;
        let sparse = self.model.clock().take()?.map(|us| us / 1e3 / epochs);
        Ok((times.iter().sum::<f64>() / epochs, sparse))
    }
}

impl<M: Model> Drop for Training<M> {
    fn drop(&mut self) {
        // Before the matrices are freed. Errors have nobody to go to.
        let _ = self.synchronize();
    }
}

/// The middle one, or the mean of the two in the middle.
pub(crate) fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    match times.len() {
        0 => f64::NAN,
        n => (times[(n - 1) / 2] + times[n / 2]) / 2.0,
    }
}

/// Makes a model, trains it and says how that went, or what went wrong.
pub(crate) fn main<M: Model>(
    name: &str,
    options: &Options,
    make: impl FnOnce(&Csr<f32>, &Task) -> Result<(M, Device, String)>,
) -> ExitCode {
    let Err(error) = run(name, options, make) else { return ExitCode::SUCCESS };
    // Errors name their causes; a standard error that is closed has nobody to tell.
    let _ = writeln!(std::io::stderr(), "{name}: {error}");
    ExitCode::FAILURE
}

fn run<M: Model>(
    name: &str,
    options: &Options,
    make: impl FnOnce(&Csr<f32>, &Task) -> Result<(M, Device, String)>,
) -> Result<()> {
    let graph = options.graph()?;
    let task = options.task(&graph)?;
    let mut out = std::io::stdout().lock();
    let talks = !options.json;
    let (model, device, reports) = make(&graph, &task)?;
    if talks {
        let Options { layers, hidden, features, classes, precision, .. } = options;
        writeln!(
            out,
            "{name} with {layers} layers, {features} features, {hidden} hidden, {classes} classes, {precision}"
        )?;
        writeln!(
            out,
            "graph    {}: {} nodes, {} entries, loops counted",
            options.graph.display(),
            graph.rows(),
            graph.nnz()
        )?;
        writeln!(out, "device   {device}")?;
    }
    if talks && options.reports {
        writeln!(out, "{reports}")?;
    }
    let (preprocessing_s, heads) = (model.preprocessing_s(), model.heads());
    let mut training = Training::new(model, &task, &device, options.learning_rate)?;
    let every = options.every.max(1);
    let times = training.run(options.epochs, |epoch, training| {
        if talks && (epoch == 1 || epoch % every == 0) {
            let Outcome { loss, .. } = training.outcome()?;
            writeln!(out, "epoch {epoch:5}  loss {loss:.5}")?;
        }
        Ok(())
    })?;
    let total_s = times.iter().sum::<f64>() / 1e3;
    let counted = times.get(options.warm_up.min(times.len().saturating_sub(1))..).unwrap_or_default();
    let median_ms = median(counted.to_vec());
    let captured_ms = match options.captured && !times.is_empty() {
        true => {
            let graph = training.capture()?;
            Some(median(training.run_captured(times.len(), &graph)?))
        }
        false => None,
    };
    let Outcome { loss, right_weighted, right_others } = training.evaluate()?;
    #[expect(clippy::cast_precision_loss, reason = "shares are rounded")]
    let share = |right: usize, of: usize| right as f64 / of.max(1) as f64;
    let trained = task.trained_count();
    let (train, test) = (share(right_weighted, trained), share(right_others, graph.rows() - trained));
    let preprocessing_share = preprocessing_s / (preprocessing_s + total_s);
    let profile = if options.profile { Some(training.profile()?) } else { None };
    let sparse_share = profile.map(|(epoch, sparse)| sparse.iter().sum::<f64>() / epoch);
    if talks {
        writeln!(
            out,
            "loss {loss:.5}, accuracy {train:.4} of the {trained} nodes learned from, {test:.4} of the others"
        )?;
        writeln!(
            out,
            "epoch    {median_ms:.3} ms (median of {}, after {} of warm-up)",
            counted.len(),
            times.len() - counted.len()
        )?;
        if let Some(ms) = captured_ms {
            let factor = median_ms / ms;
            writeln!(
                out,
                "graph    {ms:.3} ms an epoch (median of {} launches), {factor:.2} times as fast",
                times.len()
            )?;
        }
        writeln!(
            out,
            "plans    {preprocessing_s:.3} s, {:.1} % of the time with {} epochs",
            100.0 * preprocessing_share,
            times.len()
        )?;
        if let Some((epoch, sparse)) = profile {
            writeln!(
                out,
                "sparse   {:.1} % of an epoch of {epoch:.3} ms with marks",
                100.0 * sparse_share.unwrap_or(0.0)
            )?;
            for ((_, kind), ms) in Work::ALL.into_iter().zip(sparse) {
                writeln!(out, "  {kind:<8} {ms:.3} ms")?;
            }
        }
        return Ok(());
    }
    let kinds = profile.map(|(epoch, sparse)| {
        let kinds = Work::ALL.into_iter().zip(sparse).map(|((_, kind), ms)| (kind.to_owned(), json!(ms)));
        json!({ "epoch_ms": epoch, "sparse_ms": kinds.collect::<serde_json::Map<_, _>>() })
    });
    let Options { layers, hidden, features, classes, precision, seed, learning_rate, .. } = options;
    let line = json!({
        "schema": 1,
        "model": name,
        "program": "windrow",
        "graph": options.graph.display().to_string(),
        "nodes": graph.rows(),
        "entries": graph.nnz(),
        "layers": layers,
        "features": features,
        "hidden": hidden,
        "heads": heads,
        "classes": classes,
        "precision": precision.to_string(),
        "dense": format!("{:?}", options.dense).to_lowercase(),
        "seed": seed,
        "learning_rate": learning_rate,
        "device": device.to_string(),
        "epochs": times.len(),
        "epoch_ms": median_ms,
        "graph_epoch_ms": captured_ms,
        "total_s": total_s,
        "preprocessing_s": preprocessing_s,
        "preprocessing_share": preprocessing_share,
        "loss": loss,
        "train_accuracy": train,
        "test_accuracy": test,
        "sparse_share": sparse_share,
        "profile": kinds,
    });
    Ok(writeln!(out, "{line}")?)
}
