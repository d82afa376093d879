//! The threads that read and compute on the CPU.

use std::num::NonZero;

use crate::failure::{Exit, Failure, Result};

/// The variable that rayon takes a number of threads from.
const VARIABLE: &str = "RAYON_NUM_THREADS";
/// Threads for each processor, at most: more only wait for each other, for seconds if there are thousands.
const MOST_A_PROCESSOR: usize = 8;
/// What is allowed on any machine.
const ALWAYS_ALLOWED: usize = 64;

/// Starts as many threads as were asked for by the option, else by the variable, else one a processor.
///
/// # Errors
/// [`Exit::Limit`] for more than the processors can make use of, or if the system starts no more.
pub(crate) fn start(option: Option<u16>) -> Result<()> {
    let variable =
        std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok()).filter(|&number| number > 0);
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let wanted = check(option.map(usize::from), variable, processors)?;
    rayon::ThreadPoolBuilder::new().num_threads(wanted).build_global().map_err(|error| {
        Failure::new(
            Exit::Limit,
            format!("cannot start {wanted} threads: {error}; ask for fewer with --threads"),
        )
    })
}

fn check(option: Option<usize>, variable: Option<usize>, processors: usize) -> Result<usize> {
    let wanted = option.or(variable).unwrap_or(processors);
    let most = ALWAYS_ALLOWED.max(MOST_A_PROCESSOR * processors);
    if wanted <= most {
        return Ok(wanted);
    }
    let source = if option.is_some() { "--threads" } else { VARIABLE };
    Err(Failure::new(
        Exit::Limit,
        format!(
            "{source}: {wanted} threads are more than the limit of {most} for {processors} processors; ask for fewer"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_comes_before_the_variable() {
        assert_eq!(check(Some(3), Some(4000), 2).unwrap(), 3);
        assert_eq!(check(None, Some(5), 2).unwrap(), 5);
        assert_eq!(check(None, None, 192).unwrap(), 192);
    }

    #[test]
    fn thousands_are_refused() {
        assert_eq!((check(Some(64), None, 2).unwrap(), check(Some(1536), None, 192).unwrap()), (64, 1536));
        for (option, variable, name) in
            [(Some(2000), None, "--threads"), (None, Some(4000), "RAYON_NUM_THREADS")]
        {
            let failure = check(option, variable, 2).unwrap_err();
            assert_eq!(failure.exit, Exit::Limit);
            let text = failure.to_string();
            assert!(text.starts_with(name) && text.contains("the limit of 64 for 2 processors"), "{text}");
        }
    }
}
