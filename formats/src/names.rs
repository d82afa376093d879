//! Enums whose values have names.

use thiserror::Error;

/// A text that names no value of an option.
///
/// # Examples
/// ```
/// use windrow_formats::UnknownName;
///
/// let error = UnknownName { what: "colour", text: "grue".to_owned(), known: "green and blue" };
/// assert_eq!(error.to_string(), "\"grue\" is no colour; there are green and blue");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is no {what}; there are {known}")]
pub struct UnknownName {
    /// What it should name.
    pub what: &'static str,
    /// The text that was to be one of the names.
    pub text: String,
    /// The names that there are.
    pub known: &'static str,
}

/// `Display` and `FromStr` of an enum from one table of names: what a value is shown as is what is read as that value.
///
/// A text that is none of the names becomes an [`UnknownName`]; or `Error::UnknownName { what, text, known }`, for an
/// error with that variant that is named after what the enum is; or whatever a function makes of the text and of the
/// names, listed as `"a, b and c"` in the order of the table. With `pub name;` in front, there is also a
/// `const fn name(self) -> &'static str`.
///
/// # Examples
/// ```
/// use windrow_formats::names;
///
/// #[derive(Debug, Clone, Copy, PartialEq)]
/// enum Side {
///     Left,
///     Right,
///     Both,
/// }
/// names!(pub name; Side, String, |text, known| format!("{text:?} is no side; there are {known}");
///     Left => "left", Right => "right", Both => "both");
///
/// assert_eq!("both".parse(), Ok(Side::Both));
/// assert_eq!((Side::Left.to_string().as_str(), Side::Right.name()), ("left", "right"));
/// assert_eq!("up".parse::<Side>().unwrap_err(), "\"up\" is no side; there are left, right and both");
///
/// #[derive(Debug)]
/// enum Light {
///     Red,
///     Green,
/// }
/// names!(Light, "light"; Red => "red", Green => "green");
/// assert_eq!("blue".parse::<Light>().unwrap_err().to_string(), "\"blue\" is no light; there are red and green");
///
/// #[derive(Debug, PartialEq)]
/// enum Wrong {
///     UnknownName { what: &'static str, text: String, known: &'static str },
/// }
/// #[derive(Debug)]
/// enum Switch {
///     On,
///     Off,
/// }
/// names!(Switch, "switch", Wrong; On => "on", Off => "off");
///
/// let wrong = Wrong::UnknownName { what: "switch", text: "ON".to_owned(), known: "on and off" };
/// assert_eq!("ON".parse::<Switch>().unwrap_err(), wrong);
/// ```
#[macro_export]
macro_rules! names {
    (@list $only:literal) => { $only };
    (@list $one:literal, $last:literal) => { concat!($one, " and ", $last) };
    (@list $first:literal, $($rest:literal),+) => { concat!($first, ", ", $crate::names!(@list $($rest),+)) };

    (pub name; $type:ident, $error:ty, $unknown:expr; $($variant:ident => $name:literal),+ $(,)?) => {
        impl $type {
            /// The name by which [`FromStr`](std::str::FromStr) knows it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }

        $crate::names!($type, $error, $unknown; $($variant => $name),+);
    };
    ($type:ident, $what:literal; $($variant:ident => $name:literal),+ $(,)?) => {
        $crate::names!(
            $type,
            $crate::UnknownName,
            |text, known| $crate::UnknownName { what: $what, text: text.to_owned(), known };
            $($variant => $name),+
        );
    };
    ($type:ident, $what:literal, $error:ident; $($variant:ident => $name:literal),+ $(,)?) => {
        $crate::names!(
            $type,
            $error,
            |text, known| $error::UnknownName { what: $what, text: text.to_owned(), known };
            $($variant => $name),+
        );
    };
    ($type:ident, $error:ty, $unknown:expr; $($variant:ident => $name:literal),+ $(,)?) => {
        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(match self { $(Self::$variant => $name),+ })
            }
        }

        impl ::std::str::FromStr for $type {
            type Err = $error;

            fn from_str(text: &str) -> ::std::result::Result<Self, $error> {
                let unknown: fn(&str, &'static str) -> $error = $unknown;
                match text {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(unknown(text, $crate::names!(@list $($name),+))),
                }
            }
        }
    };
}
