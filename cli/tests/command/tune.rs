//! `windrow tune`, and how commands find what it kept.

use super::run::windrow;

#[test]
fn the_cpu_has_nothing_to_tune() {
    windrow(&["tune", "--device", "cpu"]).failed(4, &["the CPU has one algorithm", "--device cuda:0"]);
    windrow(&["tune", "--device", "cuda:99"]).failed(4, &["CUDA"]);
}

#[test]
fn help_says_where_profiles_are_kept() {
    windrow(&["tune", "--help"]).succeeded().says(&["WINDROW_CACHE_DIR"]).says(&["--dry-run"]);
}
