//! A page of metrics in Prometheus' text format, as a server exports it.

use std::collections::BTreeMap;

/// The samples of a page, by the name of their series.
#[derive(Clone, Debug, Default)]
pub(super) struct MetricsText(BTreeMap<String, Vec<Series>>);

#[derive(Clone, Debug)]
struct Series {
    labels: Vec<(String, String)>,
    value: f64,
}

impl MetricsText {
    /// Reads a page. A line that is none of the format is passed over: a later version may add to it.
    pub(super) fn parse(text: &str) -> MetricsText {
        let mut found: BTreeMap<String, Vec<Series>> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some((name, series)) = Series::parse(line) {
                found.entry(name.to_owned()).or_default().push(series);
            }
        }
        MetricsText(found)
    }

    /// True if it has no series of a server of frieze.
    pub(super) fn is_foreign(&self) -> bool {
        !self.0.contains_key("frieze_build_info")
    }

    /// The value of a series without labels; of one with labels the sum. `None` where the server exports none.
    pub(super) fn value(&self, name: &str) -> Option<f64> {
        let series = self.0.get(name)?;
        Some(series.iter().map(|series| series.value).sum())
    }

    /// The values of a series by one of its labels.
    pub(super) fn by(&self, name: &str, label: &str) -> BTreeMap<&str, f64> {
        let mut values = BTreeMap::new();
        for series in self.0.get(name).into_iter().flatten() {
            if let Some(value) = series.label(label) {
                *values.entry(value).or_insert(0.0) += series.value;
            }
        }
        values
    }

    /// The buckets of a histogram by one of its labels: upper ends and counts up to them, in order.
    pub(super) fn buckets(&self, name: &str, label: &str) -> BTreeMap<&str, Vec<(f64, f64)>> {
        let mut values: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
        for series in self.0.get(name).into_iter().flatten() {
            if let (Some(value), Some(end)) = (series.label(label), series.label("le").and_then(number)) {
                values.entry(value).or_default().push((end, series.value));
            }
        }
        values.values_mut().for_each(|buckets| buckets.sort_by(|one, other| one.0.total_cmp(&other.0)));
        values
    }

    /// The value of a label of the first series of this name.
    pub(super) fn label(&self, name: &str, label: &str) -> Option<&str> {
        self.0.get(name)?.first()?.label(label)
    }
}

impl Series {
    /// Name and series of a line `name{label="value",...} value`.
    fn parse(line: &str) -> Option<(&str, Series)> {
        let end = line.find(['{', ' '])?;
        let (name, mut rest) = line.split_at(end);
        let mut labels = Vec::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            while !rest.starts_with('}') {
                let (label, behind) = rest.split_once("=\"")?;
                let (value, behind) = quoted(behind)?;
                labels.push((label.to_owned(), value));
                rest = behind.strip_prefix(',').unwrap_or(behind);
            }
            rest = &rest[1..];
        }
        let value = number(rest.split_ascii_whitespace().next()?)?;
        Some((name, Series { labels, value }))
    }

    fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }
}

/// The text up to the next quote that is not escaped, and what is behind it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match letters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

/// A number as the format has it: Rust reads its infinities, too.
fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_with_its_labels() {
        let page = MetricsText::parse(
            "# HELP frieze_build_info x\nfrieze_build_info{version=\"0.1\"} 1\nplain 2.5\n\
             odd{a=\"x \\\"}, y\",b=\"\\\\\"} \
             7 1700000000\nsum{kind=\"read\"} 1\nsum{kind=\"write\"} 2\nendless inf\n\nbroken{a=\"x 3\nnothing\n",
        );
        assert!(!page.is_foreign());
        assert_eq!(page.value("plain"), Some(2.5));
        assert_eq!(page.label("odd", "a"), Some("x \"}, y"));
        assert_eq!(page.label("odd", "b"), Some("\\"));
        assert_eq!(page.value("odd"), Some(7.0));
        assert_eq!(page.value("sum"), Some(3.0));
        assert_eq!(page.by("sum", "kind"), BTreeMap::from([("read", 1.0), ("write", 2.0)]));
        assert_eq!(page.value("endless"), Some(f64::INFINITY));
        assert_eq!((page.value("broken"), page.value("nothing")), (None, None));
        assert!(MetricsText::parse("<html>").is_foreign());
    }

    #[test]
    fn buckets_are_in_order() {
        let page =
            MetricsText::parse("h{kind=\"a\",le=\"+Inf\"} 3\nh{kind=\"a\",le=\"0.5\"} 2\nh{kind=\"b\",le=\"1\"} 9\n");
        let buckets = page.buckets("h", "kind");
        assert_eq!(buckets["a"], [(0.5, 2.0), (f64::INFINITY, 3.0)]);
        assert_eq!(buckets["b"], [(1.0, 9.0)]);
    }
}
