//! Records with known numbers, in files of a test.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::suites::testing::temporary;

/// A file of lines, removed in the end.
pub(crate) struct File(pub(crate) PathBuf);

impl File {
    pub(crate) fn new(name: &str, lines: &[String]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let path = temporary(&format!("{name}-{}.jsonl", NEXT.fetch_add(1, Ordering::Relaxed)));
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    /// Its path as a word of a command line.
    pub(crate) fn word(&self) -> String {
        self.0.to_str().unwrap().to_owned()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A line of the suite `spmm`, of a matrix with 16 rows and 64 entries, at half of the roofline: a median and its
/// noise, and cuSPARSE's median.
pub(crate) fn line(
    matrix: &str,
    width: usize,
    path: &str,
    (us, noise): (f64, f64),
    cusparse_us: Option<f64>,
) -> String {
    let peer = cusparse_us.map_or_else(String::new, |us| {
        format!(
            "{{\"math\":\"f32\",\"version\":\"1\",\"algorithm\":\"A\",\"median_us\":{us},\"error\":null}}"
        )
    });
    let matrix = serde_json::to_string(matrix).unwrap();
    format!(
        "{{\"schema\":1,\"suite\":\"spmm\",\"revision\":\"abc\",\"device\":{{\"name\":\"GPU\",\"kind\":\"cuda\",\
         \"driver\":null,\"multiprocessors\":1}},\"matrix\":{{\"name\":{matrix},\"checksum\":\"0f\",\"rows\":16,\
         \"cols\":16,\"nnz\":64}},\"values\":\"random\",\"width\":{width},\"path\":\"{path}\",\"plan\":null,\
         \"time\":{{\"median_us\":{us},\"min_us\":{us},\"max_us\":{us},\"noise\":{noise},\"batches\":9,\"calls\":90,\
         \"gathered_gbps\":100.0,\"roofline_us\":{},\"roofline_fraction\":0.5}},\"cusparse\":[{peer}],\
         \"error\":null}}",
        us / 2.0
    )
}

/// The same record, of a cold L2 cache.
pub(crate) fn cold(line: &str) -> String {
    let cold = "\"l2\":{\"cold\":{\"flushed_bytes\":128,\"cache\":\"told\"}},\"values\"";
    line.replacen("\"values\"", cold, 1)
}
