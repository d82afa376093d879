//! The scanners against `str::parse`, on tables and on random numbers.

use proptest::prelude::*;

use super::*;

/// Scans `number` followed by what may follow it in a file; declined numbers go to [`parse_f64`].
fn scan(number: &str) -> (f64, bool) {
    let text = format!("{number}\n        ");
    match scan_f64(text.as_bytes(), 0) {
        Some((value, end)) => {
            assert_eq!(end, number.len(), "{number}");
            (value, true)
        }
        None => (parse_f64(number.as_bytes()).unwrap(), false),
    }
}

#[track_caller]
fn check(number: &str) -> bool {
    let (got, scanned) = scan(number);
    let want: f64 = number.parse().unwrap();
    assert!(
        got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
        "{number}: {got:e}, not {want:e}"
    );
    scanned
}

#[test]
fn scans_common_shapes_itself() {
    for number in [
        "0",
        "-0",
        "+1",
        "1.",
        ".5",
        "-.5",
        "0.0",
        "-0.0",
        "1e5",
        "1E+05",
        "1e-05",
        "3.141592653589793",
        "-1.116000456065605",
        "1.9339296434973036E-1",
        "-9.872372808118768E-1",
        "12345678",
        "123456789",
        "1234567890123456789",
        "9007199254740993",
        "9007199254740993e1",
        "1.2345678901234567e-10",
        "1.2345678901234567e+27",
        "9223372036854775807",
        "0e0",
        "0e27",
        "9999999999999999999e27",
        "9999999999999999999e-27",
        "0000000000000000001",
        "0000000000000001",
        "0000000000000000.1e1",
        "1493182624999315",
    ] {
        assert!(check(number), "{number} was declined");
    }
}

#[test]
fn declines_what_is_rare() {
    for number in [
        "nan",
        "-NaN",
        "inf",
        "-Infinity",
        "12345678901234567890",
        "0.1234567890123456789",
        "1e23456",
        "1e-300",
        "1.7976931348623157e308",
        "4.9e-324",
        "1.2345678901234567e-28",
        "0.00000000000000000000000000001",
        "1e99999999",
    ] {
        assert!(!check(number), "{number} was not declined");
    }
}

#[test]
fn declines_what_is_no_number() {
    for text in ["", "-", ".", "-.", "e5", "1e", "1e+", "x", "--1", "+-1"] {
        let padded = format!("{text}\n        ");
        assert_eq!(scan_f64(padded.as_bytes(), 0), None, "{text}");
        assert_eq!(parse_f64(text.as_bytes()), None, "{text}");
    }
    assert_eq!(scan_f64(b"1.5", 0), None, "too near the end of the text");
    assert_eq!(parse_f64(b"1\xff"), None);
}

#[test]
fn halfway_cases_round_to_even() {
    // 2^53 + 1 and neighbours, with and without something behind the tie.
    for number in
        ["9007199254740993", "900719925474099300e-2", "9007199254740993001e-3", "9007199254740992999e-3"]
    {
        assert!(check(number));
    }
}

#[test]
fn indices_of_up_to_fifteen_digits() {
    for number in ["0", "7", "42", "1234567", "12345678", "123456789", "123456789012345", "000000000000012"] {
        let text = format!("{number} 1               ");
        assert_eq!(scan_index(text.as_bytes(), 0), Some((number.parse().unwrap(), number.len())));
        assert_eq!(parse_unsigned(number.as_bytes()), number.parse().ok());
    }
    assert_eq!(scan_index(b"1234567890123456 1         ", 0), None);
    assert_eq!(scan_index(b"-1              ", 0), None);
    assert_eq!(scan_index(b"12345678", 0), None, "nothing tells where it ends");
    assert_eq!(parse_unsigned(b"99999999999999999999999"), Some(u64::MAX));
    assert_eq!((parse_unsigned(b""), parse_unsigned(b"+1"), parse_unsigned(b"1.0")), (None, None, None));
    assert!(is_integer(b"-12") && is_integer(b"+0") && !is_integer(b"-") && !is_integer(b"1.0"));
}

#[test]
fn every_byte_ends_a_number() {
    for byte in (0..=255u8).filter(|byte| !byte.is_ascii_digit()) {
        let mut text = *b"12_\xff\xff99999999999";
        text[2] = byte;
        assert_eq!(scan_index(&text, 0), Some((12, 2)), "byte {byte}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_float_in_any_common_notation(bits in any::<u64>(), digits in 0usize..20) {
        let x = f64::from_bits(bits);
        if x.is_finite() {
            check(&format!("{x:?}"));
            check(&format!("{x:e}"));
            check(&format!("{x:.digits$e}"));
            check(&format!("{x:.digits$E}"));
        }
    }

    #[test]
    fn floats_of_ordinary_size(x in -1e12..1e12f64, small in -1.0..1.0f64, digits in 0usize..20) {
        for x in [x, small, small * 1e-9] {
            check(&format!("{x}"));
            check(&format!("{x:.digits$}"));
            check(&format!("{x:.digits$e}"));
        }
    }

    #[test]
    fn any_mantissa_and_exponent(mantissa in any::<u64>(), cut in 0u32..64, exponent in -40i32..40) {
        check(&format!("{}e{exponent}", mantissa >> cut));
    }

    #[test]
    fn near_ties(mantissa in 1u64 << 52..1 << 53, places in 0u32..5, off in -2i64..3) {
        // Half-way points between two f64, in decimal, and their neighbours.
        let tie = i128::from(2 * mantissa + 1) * 10i128.pow(places) + i128::from(off);
        check(&format!("{tie}e-{places}"));
    }

    #[test]
    fn digits_and_dots(number in "[-+]?[0-9]{1,22}(\\.[0-9]{0,22})?([eE][-+]?[0-9]{1,3})?") {
        check(&number);
    }

    #[test]
    fn arbitrary_text_never_scans_to_something_else(text in "[-+0-9.eE a-z]{0,24}") {
        let padded = format!("{text}\n        ");
        if let Some((value, end)) = scan_f64(padded.as_bytes(), 0) {
            let token = &padded.as_bytes()[..end];
            prop_assert_eq!(Some(value.to_bits()), parse_f64(token).map(f64::to_bits));
        }
    }
}
