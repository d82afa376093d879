//! Charts as SVG, for a light page and for a dark one: no background, colours of middle lightness.

use std::ops::Range;

use plotters::coord::combinators::{IntoLogRange, LogCoord};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::program::{Exit, Failure};

/// Width and height in pixels, the list of names included.
const SIZE: (u32, u32) = (900, 420);
/// Pixels of the list of names.
const NAMES: u32 = 300;
/// The colour of text, axes and lines.
const GREY: RGBColor = RGBColor(125, 125, 125);
/// One for each series, told apart by most people who see few colours.
const COLOURS: [RGBColor; 8] = [
    RGBColor(63, 131, 209),
    RGBColor(217, 122, 30),
    RGBColor(47, 158, 110),
    RGBColor(168, 104, 201),
    RGBColor(209, 73, 91),
    RGBColor(42, 154, 168),
    RGBColor(152, 145, 27),
    RGBColor(138, 127, 120),
];

/// Radii of round marks, of every third series and of the one behind it; between them are squares.
const RADII: [u32; 3] = [3, 0, 2];
/// Side of a square mark, in pixels; an even number, so that it has a middle.
const SQUARE: i32 = 6;

/// The most series that can be told apart.
pub(crate) const MOST_SERIES: usize = COLOURS.len();

/// How values are spread along an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Spacing {
    Even,
    /// By powers of this number.
    Powers(f64),
}

/// An axis: what it tells, from where to where.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) range: Range<f64>,
    pub(crate) spacing: Spacing,
}

/// Values under one name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Form {
    Marks,
    Lines,
}

/// A picture before it is drawn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) form: Form,
    pub(crate) series: Vec<Series>,
    /// A level that separates two verdicts, such as a speed-up of 1.
    pub(crate) level: Option<f64>,
    /// Points with a name beside them.
    pub(crate) labels: Vec<(f64, f64, String)>,
}

/// The coordinates of an axis.
enum Scale {
    Even(RangedCoordf64),
    Powers(LogCoord<f64>),
}

impl From<&Axis> for Scale {
    fn from(axis: &Axis) -> Self {
        match axis.spacing {
            Spacing::Even => Self::Even(axis.range.clone().into()),
            Spacing::Powers(base) => Self::Powers(axis.range.clone().log_scale().base(base).into()),
        }
    }
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        match self {
            Self::Even(scale) => scale.map(value, limit),
            Self::Powers(scale) => scale.map(value, limit),
        }
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match self {
            Self::Even(scale) => scale.key_points(hint),
            Self::Powers(scale) => scale.key_points(hint),
        }
    }

    fn range(&self) -> Range<f64> {
        match self {
            Self::Even(scale) => scale.range(),
            Self::Powers(scale) => scale.range(),
        }
    }
}

impl ValueFormatter<f64> for Scale {
    fn format(value: &f64) -> String {
        number(*value)
    }
}

/// A number as short as it is told apart: 0.25, 12, 30k, 4M.
fn number(value: f64) -> String {
    let short = |value: f64, unit: &str| {
        let text = format!("{value:.2}");
        format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
    };
    match value.abs() {
        size if size >= 1e9 => short(value / 1e9, "G"),
        size if size >= 1e6 => short(value / 1e6, "M"),
        size if size >= 1e4 => short(value / 1e3, "k"),
        size if size >= 0.01 || size == 0.0 => short(value, ""),
        _ => format!("{value:.1e}"),
    }
}

impl Chart {
    /// The picture, from tag to tag.
    ///
    /// # Errors
    /// [`Exit::Usage`] if there is nothing to draw.
    pub(crate) fn svg(&self) -> Result<String, Failure> {
        if self.series.iter().all(|series| series.points.is_empty()) {
            return Err(Failure::usage(format!("{}: nothing to draw", self.title)));
        }
        let mut text = String::new();
        self.draw(&mut text).map_err(|error| Failure::new(Exit::Failed, format!("the picture: {error}")))?;
        // What holds for all of it is said once.
        let font = " font-family=\"sans-serif\"";
        let text = strokes(&text.replace(" opacity=\"1\"", "").replace(font, ""));
        let title = escaped(&self.title);
        Ok(text.replacen("xmlns=", &format!("role=\"img\"{font} aria-label=\"{title}\" xmlns="), 1))
    }

    fn draw(&self, text: &mut String) -> Result<(), Box<dyn std::error::Error + '_>> {
        let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
        let (area, names) = root.split_horizontally(SIZE.0 - NAMES);
        let small = ("sans-serif", 13).into_font().color(&GREY);
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 16).into_font().color(&GREY))
            .margin(8)
            .x_label_area_size(42)
            .y_label_area_size(56)
            .build_cartesian_2d(Scale::from(&self.x), Scale::from(&self.y))?;
        chart
            .configure_mesh()
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .axis_style(GREY)
            .bold_line_style(GREY.mix(0.3))
            .light_line_style(TRANSPARENT)
            .label_style(small.clone())
            .axis_desc_style(small.clone())
            .x_labels(8)
            .y_labels(8)
            .draw()?;
        if let Some(level) = self.level {
            let ends = [self.x.range.start, self.x.range.end].map(|x| (x, level));
            chart.draw_series(std::iter::once(PathElement::new(ends, GREY.stroke_width(2))))?;
        }
        for (at, series) in self.series.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            match (self.form, at % 3) {
                (Form::Lines, _) => {
                    let line = PathElement::new(series.points.clone(), colour.stroke_width(2));
                    chart.draw_series(std::iter::once(line))?;
                }
                (Form::Marks, 1) => {
                    let square = |at: &(f64, f64)| EmptyElement::at(*at) + square((0, 0), colour);
                    chart.draw_series(series.points.iter().map(square))?;
                }
                (Form::Marks, shape) => {
                    let round = |&at| Circle::new(at, RADII[shape], colour.filled());
                    chart.draw_series(series.points.iter().map(round))?;
                }
            }
        }
        // To the side where there is room: the axis below goes by powers.
        let middle = (self.x.range.start * self.x.range.end).sqrt();
        for (x, y, label) in &self.labels {
            let (side, offset) = if *x > middle { (HPos::Right, -7) } else { (HPos::Left, 7) };
            let style = small.clone().pos(Pos::new(side, VPos::Center));
            chart.draw_series(std::iter::once(
                EmptyElement::at((*x, *y)) + Text::new(label.clone(), (offset, 0), style),
            ))?;
        }
        for (at, series) in self.series.iter().enumerate() {
            let (colour, y) = (COLOURS[at % COLOURS.len()], 44 + 20 * i32::try_from(at)?);
            match (self.form, at % 3) {
                (Form::Lines, _) => {
                    names.draw(&PathElement::new([(2, y), (14, y)], colour.stroke_width(2)))?;
                }
                (Form::Marks, 1) => names.draw(&square((8, y), colour))?,
                (Form::Marks, shape) => names.draw(&Circle::new((8, y), RADII[shape], colour.filled()))?,
            }
            let style = small.clone().pos(Pos::new(HPos::Left, VPos::Center));
            names.draw(&Text::new(series.name.clone(), (20, y), style))?;
        }
        root.present()?;
        Ok(())
    }
}

/// A square mark around a pixel.
fn square((x, y): (i32, i32), colour: RGBColor) -> Rectangle<(i32, i32)> {
    let half = SQUARE / 2;
    Rectangle::new([(x - half, y - half), (x - half + SQUARE, y - half + SQUARE)], colour.filled())
}

/// End of a stroke, width and colour of marks.
type Shape<'a> = (&'a str, i32, &'a str);
/// Marks of one shape that follow each other.
type Run<'a> = (Shape<'a>, Vec<(i32, i32)>);

/// The same picture with runs of marks of one kind as one path of strokes without length, whose ends are the marks: a
/// fifth of the bytes.
fn strokes(svg: &str) -> String {
    let mut out = String::with_capacity(svg.len() / 2);
    let mut run: Option<Run<'_>> = None;
    let end = |out: &mut String, run: Option<Run<'_>>| {
        let Some(((cap, width, colour), mut marks)) = run else { return };
        marks.dedup();
        let path: String = marks.iter().map(|(x, y)| format!("M{x} {y}h0")).collect();
        out.push_str(&format!(
            "<path fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-linecap=\"{cap}\" d=\"{path}\"/>\n"
        ));
    };
    for line in svg.lines() {
        let Some((kind, at)) = mark(line) else {
            end(&mut out, run.take());
            out.push_str(line);
            out.push('\n');
            continue;
        };
        match &mut run {
            Some((known, marks)) if *known == kind => marks.push(at),
            _ => end(&mut out, run.replace((kind, vec![at]))),
        }
    }
    end(&mut out, run);
    out
}

/// Shape, width and colour of a mark, and where it is, of a line that is one.
fn mark(line: &str) -> Option<(Shape<'_>, (i32, i32))> {
    let attribute = |name: &str| {
        let (_, rest) = line.split_once(&format!(" {name}=\""))?;
        rest.split('"').next()
    };
    let number = |name: &str| attribute(name)?.parse::<i32>().ok();
    let colour = attribute("fill").filter(|colour| colour.starts_with('#'))?;
    if line.starts_with("<circle ") {
        return Some((("round", 2 * number("r")?, colour), (number("cx")?, number("cy")?)));
    }
    let is_square =
        line.starts_with("<rect ") && (number("width"), number("height")) == (Some(SQUARE), Some(SQUARE));
    let half = SQUARE / 2;
    is_square.then_some((("square", SQUARE, colour), (number("x")? + half, number("y")? + half)))
}

/// Text as it stands between tags and in attributes.
pub(crate) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

/// From a power of `base` below the values to one above, for an axis by powers.
pub(crate) fn around(values: impl Iterator<Item = f64>, base: f64) -> Range<f64> {
    let (least, most) = values
        .filter(|value| value.is_finite() && *value > 0.0)
        .fold((f64::INFINITY, 0.0f64), |(least, most), value| (least.min(value), most.max(value)));
    if most == 0.0 {
        return 1.0..base;
    }
    let power = |value: f64, round: fn(f64) -> f64| base.powf(round(value.ln() / base.ln() * 2.0) / 2.0);
    let (low, high) = (power(least, f64::floor), power(most, f64::ceil));
    if low < high { low..high } else { low / base..high * base }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let axis = |label: &str, spacing| Axis { label: label.to_owned(), range: 1.0..100.0, spacing };
        Chart {
            title: "a < b & \"c\"".to_owned(),
            x: axis("x", Spacing::Powers(10.0)),
            y: axis("y", Spacing::Even),
            form: Form::Marks,
            series: vec![Series { name: "<s>".to_owned(), points: vec![(1.0, 1.0), (10.0, 100.0)] }],
            level: Some(50.0),
            labels: vec![(10.0, 100.0, "best".to_owned())],
        }
    }

    #[test]
    fn marks_are_where_they_belong() {
        let svg = chart().svg().unwrap();
        // Two marks, and the one beside the name.
        let (left, right) = (8 + 56, 900 - 300 - 8 - 1);
        let marks: Vec<_> = svg.lines().filter(|line| line.contains("stroke-linecap=\"round\"")).collect();
        let [marks, name] = marks[..] else { panic!("{svg}") };
        // From 1 to 100 by powers, 10 is in the middle: margin, labels, and half of the rest.
        let middle = left + (right - left) / 2;
        assert!(marks.contains("stroke=\"#3F83D1\" stroke-width=\"6\""), "{marks}");
        assert!(marks.contains(&format!("M{left} ")) && marks.contains(&format!("h0M{middle} ")), "{marks}");
        assert_eq!(marks.matches("h0").count() + name.matches("h0").count(), 3, "{svg}");
    }

    #[test]
    fn marks_of_one_kind_are_one_path() {
        let svg = "<svg>\n<circle cx=\"1\" cy=\"2\" r=\"3\" fill=\"#AA0000\"/>\n<circle cx=\"4\" cy=\"5\" r=\"3\" fill=\"#AA0000\"/>\n\
                   <circle cx=\"4\" cy=\"5\" r=\"2\" fill=\"#AA0000\"/>\n<rect x=\"1\" y=\"2\" width=\"6\" height=\"6\" fill=\"#00BB00\"/>\n\
                   <rect x=\"1\" y=\"2\" width=\"7\" height=\"6\" fill=\"#00BB00\"/>\n</svg>\n";
        let found = strokes(svg);
        let lines: Vec<_> = found.lines().collect();
        assert!(lines[1].contains("\"6\" stroke-linecap=\"round\" d=\"M1 2h0M4 5h0\""), "{found}");
        assert!(lines[2].contains("stroke-width=\"4\" stroke-linecap=\"round\" d=\"M4 5h0\""), "{found}");
        assert!(
            lines[3].contains("\"#00BB00\" stroke-width=\"6\" stroke-linecap=\"square\" d=\"M4 5h0\""),
            "{found}"
        );
        assert!(lines[4].starts_with("<rect ") && lines.len() == 6, "{found}");
    }

    #[test]
    fn text_is_escaped() {
        let svg = chart().svg().unwrap();
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert!(svg.contains("aria-label=\"a &lt; b &amp; &quot;c&quot;\""), "{svg}");
        assert!(svg.contains("&lt;s&gt;") && !svg.contains("<s>") && svg.contains("best"), "{svg}");
    }

    #[test]
    fn nothing_to_draw_is_an_error() {
        let failure = Chart { series: Vec::new(), ..chart() }.svg().unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
    }

    #[test]
    fn ranges_are_around_the_values() {
        assert_eq!(around([3.0, 40.0].into_iter(), 2.0), 2.0f64.powf(1.5)..2.0f64.powf(5.5));
        assert_eq!(around([4.0].into_iter(), 2.0), 2.0..8.0);
        assert_eq!(around([f64::NAN, 0.0].into_iter(), 2.0), 1.0..2.0);
        assert_eq!(
            [0.25, 12.0, 30_000.0, 4e6, 2e9, 1e-3, 0.0].map(number),
            ["0.25", "12", "30k", "4M", "2G", "1.0e-3", "0"]
        );
    }
}
