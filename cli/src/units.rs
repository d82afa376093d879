//! Numbers as people read them, and sizes as people write them.

use std::time::Duration;

/// A whole number in groups of three digits: `1234567` as `1,234,567`.
pub(crate) fn count(number: impl TryInto<u64>) -> String {
    let digits = number.try_into().map_or_else(|_| "?".to_owned(), |number: u64| number.to_string());
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes with a binary unit and three or four digits: `1.50 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut scaled = bytes as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 1023.5 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{} {}", digits(scaled), UNITS[unit])
}

/// A duration given in microseconds with the unit that suits it.
pub(crate) fn time_us(us: f64) -> String {
    if us < 1e3 {
        format!("{} µs", digits(us))
    } else if us < 1e6 {
        format!("{} ms", digits(us / 1e3))
    } else {
        format!("{} s", digits(us / 1e6))
    }
}

/// Billions a second, of an amount that takes so many microseconds; 0 if that is no time at all.
pub(crate) fn giga_per_second(amount: f64, us: f64) -> f64 {
    // A thousandth of the amount per microsecond is 10⁹ a second.
    if us > 0.0 { amount / us / 1e3 } else { 0.0 }
}

/// A number with three significant digits, or all digits before the point.
pub(crate) fn digits(number: f64) -> String {
    let decimals = match number.abs() {
        x if x >= 99.95 || x == 0.0 => 0,
        x if x >= 9.995 => 1,
        x if x >= 0.0995 => 2,
        x if x >= 0.000_995 => 4,
        _ => return format!("{number:.2e}"),
    };
    format!("{number:.decimals$}")
}

/// A share as a percentage that does not hide what is small: `0.0074 %`, `37.2 %`.
pub(crate) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent.abs() {
        x if x >= 0.995 || x == 0.0 => format!("{percent:.1} %"),
        x if x >= 0.0995 => format!("{percent:.2} %"),
        x if x >= 0.001 => format!("{percent:.4} %"),
        _ => format!("{percent:.1e} %"),
    }
}

/// A time from text: `30s`, `1.5s`, `500ms`, `2m`.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let help = || format!("{text:?} is no time; write it as 30s, 1.5s, 500ms or 2m");
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        _ => return Err(help()),
    };
    let number: f64 = number.trim().parse().map_err(|_| help())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| help())
}

/// Bytes from text: `4096`, `64KiB`, `1.5GiB`, `2G` (binary, like `GiB`), `2GB` (decimal).
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let help = "write bytes as 4096, 64KiB, 1.5GiB or 2GB";
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(format!("{unit:?} is no unit; {help}")),
    };
    let number = number.trim_end();
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| format!("{text} is more than 2⁶⁴ − 1 bytes"));
    }
    // Below 2^53 every whole number of bytes is exact.
    let most = 9.0e15;
    match number.parse::<f64>() {
        Ok(number) if number >= 0.0 && number * (factor as f64) < most => {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "checked to be between 0 and 2^53"
            )]
            let bytes = (number * factor as f64) as u64;
            Ok(bytes)
        }
        _ => Err(format!("{number:?} is no size; {help}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_separators() {
        for (number, text) in [(0u64, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn times_are_read_with_their_units() {
        for (text, millis) in [("30s", 30_000), ("1.5s", 1500), ("500ms", 500), ("2m", 120_000), ("0s", 0)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)));
        }
        for text in ["30", "s", "-1s", "1h", "1e400s", "NaNs", ""] {
            assert!(parse_duration(text).unwrap_err().contains("30s"), "{text}");
        }
    }

    #[test]
    fn units_suit_the_number() {
        assert_eq!((bytes(0), bytes(1023), bytes(1024)), ("0 B".into(), "1023 B".into(), "1.00 KiB".into()));
        assert_eq!((bytes(1 << 20), bytes(3 << 29)), ("1.00 MiB".into(), "1.50 GiB".into()));
        assert_eq!(bytes((1 << 20) - 1), "1.00 MiB");
        assert_eq!((time_us(0.123), time_us(45.678)), ("0.12 µs".into(), "45.7 µs".into()));
        assert_eq!((time_us(1234.5), time_us(2.5e6)), ("1.23 ms".into(), "2.50 s".into()));
        assert_eq!(
            (percent(0.0), percent(0.372), percent(7.4e-5)),
            ("0.0 %".into(), "37.2 %".into(), "0.0074 %".into())
        );
        assert_eq!(percent(0.001_809), "0.18 %");
        assert_eq!(percent(1e-9), "1.0e-7 %");
        assert_eq!(
            (digits(0.0464), digits(1234.5), digits(3e-5)),
            ("0.0464".into(), "1234".into(), "3.00e-5".into())
        );
    }

    #[test]
    fn sizes_are_parsed() {
        for (text, size) in [
            ("0", 0),
            ("4096", 4096),
            ("64KiB", 65_536),
            ("64 kib", 65_536),
            ("1.5GiB", 3 << 29),
            ("2G", 2 << 30),
            ("2GB", 2_000_000_000),
            ("7b", 7),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text), Ok(size), "{text}");
        }
        for text in
            ["", "GiB", "-1", "1X", "1e99", "nan", "inf", "18446744073709551616", "99999999T", "1.2.3"]
        {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
