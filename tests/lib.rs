//! Integration tests, in a package of their own: what they test is optimised, since the emulator would be too slow
//! otherwise, and they are not, since that would take longer than it saves (`[profile.dev]` in the workspace's
//! manifest).
