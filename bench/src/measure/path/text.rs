//! Paths as text: `hybrid-f16+rcm+fast`, what is not the default behind algorithm and precision.

use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value};
use windrow::{Algorithm, SpmmOptions};

use super::SweepPath;
use super::short::{NAMES, SHORTS};
use crate::measure::error::BenchError;

const COLUMN_MAJOR: &str = "column-major";

/// Fields that are no options of a path: two are its beginning, and the width is the product's.
const BEFORE: [&str; 3] = ["algorithm", "precision", "width"];

impl SweepPath {
    /// With one more option.
    fn with(self, option: &str) -> Result<Self, String> {
        let Self { options, column_major } = self;
        if option == COLUMN_MAJOR {
            return match (options.algorithm, column_major) {
                (Algorithm::MatricizedRows, false) => Ok(Self { column_major: true, ..self }),
                (Algorithm::MatricizedRows, true) => Err("an option is given twice".to_owned()),
                _ => Err("only matricized-rows takes a column-major B".to_owned()),
            };
        }
        for short in &SHORTS {
            let Some(read) = (short.read)(option, options) else { continue };
            return match ((short.suits)(options.algorithm), (short.write)(&options), read) {
                (false, ..) => Err(short.suits_only.to_owned()),
                (_, Some(_), _) => Err(short.twice.to_owned()),
                (_, _, read) => Ok(Self { options: read?, ..self }),
            };
        }
        match option.split_once('=') {
            Some((field, value)) => Ok(Self { options: with_field(&options, field, value)?, ..self }),
            None => Err(format!("options are {NAMES}, and field=value of SpmmOptions")),
        }
    }
}

/// The options with another value in a field, as JSON has both; quotes around a text may be left out.
fn with_field(options: &SpmmOptions, field: &str, value: &str) -> Result<SpmmOptions, String> {
    if BEFORE.contains(&field) {
        return Err(format!("{field} is no option of a path"));
    }
    let mut fields = fields(options);
    if fields.get(field) != self::fields(&SpmmOptions::DEFAULT).get(field) {
        return Err("an option is given twice".to_owned());
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
    fields.insert(field.to_owned(), value);
    serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())
}

/// The fields of the options by their names.
fn fields(options: &SpmmOptions) -> Map<String, Value> {
    let Ok(Value::Object(fields)) = serde_json::to_value(options) else {
        unreachable!("options are plain fields")
    };
    fields
}

impl fmt::Display for SweepPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SpmmOptions { algorithm, precision, width, .. } = self.options;
        let mut text = format!("{algorithm}-{precision}");
        let mut said = SpmmOptions { algorithm, precision, width, ..SpmmOptions::DEFAULT };
        for short in &SHORTS {
            let Some(name) = (short.write)(&self.options) else { continue };
            if let Some(Ok(read)) = (short.read)(&name, said) {
                said = read;
                text = text + "+" + &name;
            }
        }
        // What has no name of its own.
        if said != self.options {
            let said = fields(&said);
            for (field, value) in fields(&self.options) {
                match value {
                    value if said.get(&field) == Some(&value) => {}
                    Value::String(value) => text = format!("{text}+{field}={value}"),
                    value => text = format!("{text}+{field}={value}"),
                }
            }
        }
        if self.column_major {
            text = text + "+" + COLUMN_MAJOR;
        }
        f.pad(&text)
    }
}

impl FromStr for SweepPath {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Self, BenchError> {
        let mut pieces = text.split('+');
        let name = pieces.next().unwrap_or_default();
        let plain = Self::all().find(|path| path.to_string() == name).ok_or_else(|| {
            let known = Self::all().map(|path| path.to_string()).collect::<Vec<_>>().join(", ");
            BenchError::UnknownPath { text: text.to_owned(), known }
        })?;
        pieces.try_fold(plain, |path, option| {
            path.with(option).map_err(|why| BenchError::PathOption {
                text: text.to_owned(),
                option: option.to_owned(),
                why,
            })
        })
    }
}
