//! A figure as SVG: a bar per row, as long as its median, with a line over its spread. Rows of one unit share a scale.

use std::fmt::Write;

use crate::report::{Figure, number};

const WIDTH: f64 = 900.0;
const LABELS: f64 = 380.0;
const LINE: f64 = 26.0;

pub(crate) fn svg(figure: &Figure) -> String {
    let height = LINE * (figure.rows.len() as f64 + 1.5);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"13\"><rect width=\"100%\" height=\"100%\" fill=\"white\"/><text x=\"8\" y=\"18\" font-weight=\"bold\">{}</text>",
        escaped(&figure.title)
    );
    for (nth, row) in figure.rows.iter().enumerate() {
        let of_unit = figure.rows.iter().filter(|other| other.unit == row.unit);
        let greatest = of_unit.map(|other| other.spread().1).fold(f64::MIN_POSITIVE, f64::max);
        // The number is to the right of the bar.
        let scale = (WIDTH - LABELS - 110.0) / greatest;
        let (top, median, (least, most)) = (LINE * (nth as f64 + 1.0), row.median(), row.spread());
        let (middle, from, to, end) = (top + 13.0, LABELS + least * scale, LABELS + most * scale, median * scale);
        _ = write!(
            text,
            "<text x=\"8\" y=\"{}\">{}</text><rect x=\"{LABELS}\" y=\"{}\" width=\"{end:.1}\" height=\"16\" fill=\"#7aa6c2\"/>\
             <line x1=\"{from:.1}\" y1=\"{middle}\" x2=\"{to:.1}\" y2=\"{middle}\" stroke=\"#333\"/>\
             <text x=\"{:.1}\" y=\"{}\">{}</text>",
            top + 18.0,
            escaped(&row.name),
            top + 5.0,
            to.max(LABELS + end) + 6.0,
            top + 18.0,
            number(median)
        );
    }
    text.push_str("</svg>\n");
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
