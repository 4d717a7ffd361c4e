//! A figure beside its ceiling, for people and for programs.

use std::io::Write;

use serde_json::{Map, Value, json};

/// The figures of a scenario.
#[derive(Clone, Debug)]
pub struct BenchReport {
    pub(crate) scenario: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) ceiling: f64,
    pub(crate) ceiling_name: &'static str,
    /// CPU seconds per `cpu_per`.
    pub(crate) cpu_client_s: f64,
    pub(crate) cpu_server_s: f64,
    pub(crate) cpu_per: &'static str,
    pub(crate) server_peak_mib: f64,
    /// Further figures: name, value, unit.
    pub(crate) more: Vec<(&'static str, f64, &'static str)>,
}

impl BenchReport {
    /// Figure over ceiling.
    pub(crate) fn ratio(&self) -> f64 {
        if self.ceiling > 0.0 { self.value / self.ceiling } else { 0.0 }
    }

    /// The median of each figure over the runs. A run's figures are measured one after the other, and a disturbance of
    /// one leaves the others: no single run has all of them at their usual values.
    ///
    /// `None` without runs.
    pub(crate) fn median(mut reports: Vec<BenchReport>) -> Option<BenchReport> {
        reports.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
        let median = |figure: &dyn Fn(&BenchReport) -> f64| {
            let mut figures: Vec<f64> = reports.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures[figures.len() / 2]
        };
        let of = reports.get(reports.len() / 2)?;
        let more = of.more.iter().enumerate().map(|(at, &(name, value, unit))| {
            // Runs of one scenario have the same figures in the same order.
            let found = median(&|report| report.more.get(at).map_or(value, |one| one.1));
            (name, found, unit)
        });
        Some(BenchReport {
            value: median(&|report| report.value),
            ceiling: median(&|report| report.ceiling),
            cpu_client_s: median(&|report| report.cpu_client_s),
            cpu_server_s: median(&|report| report.cpu_server_s),
            server_peak_mib: median(&|report| report.server_peak_mib),
            more: more.collect(),
            ..of.clone()
        })
    }

    /// Prints it.
    ///
    /// # Errors
    /// The output's, a closed pipe among them.
    pub(crate) fn print(&self, as_json: bool) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        if as_json {
            return writeln!(out, "{}", self.to_json());
        }
        writeln!(
            out,
            "{:<11} {:>10} {:<6}  ceiling {:>10} {} ({})  ratio {:.2}",
            self.scenario,
            figure(self.value),
            self.unit,
            figure(self.ceiling),
            self.unit,
            self.ceiling_name,
            self.ratio()
        )?;
        writeln!(
            out,
            "            CPU per {}: client {:.3} s, server {:.3} s; server's peak memory {:.0} MiB",
            self.cpu_per, self.cpu_client_s, self.cpu_server_s, self.server_peak_mib
        )?;
        for (name, value, unit) in &self.more {
            writeln!(out, "            {}: {} {unit}", name.replace('_', " "), figure(*value))?;
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let mut map = Map::new();
        let fields = json!({
            "scenario": self.scenario, "value": self.value, "unit": self.unit, "ceiling": self.ceiling,
            "ceiling_name": self.ceiling_name, "ratio": self.ratio(), "cpu_client_s": self.cpu_client_s,
            "cpu_server_s": self.cpu_server_s, "cpu_per": self.cpu_per, "server_peak_mib": self.server_peak_mib,
        });
        if let Value::Object(fields) = fields {
            map.extend(fields);
        }
        for (name, value, _) in &self.more {
            map.insert((*name).to_owned(), json!(value));
        }
        Value::Object(map)
    }
}

/// Three digits that matter, and whole numbers above a thousand.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => {
            let digits = format!("{value:.0}");
            let mut out = String::new();
            for (i, c) in digits.chars().enumerate() {
                if i > 0 && (digits.len() - i).is_multiple_of(3) && c != '-' {
                    out.push(',');
                }
                out.push(c);
            }
            out
        }
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(value: f64) -> BenchReport {
        BenchReport {
            scenario: "stat",
            value,
            unit: "ops/s",
            ceiling: 10.0,
            ceiling_name: "ping-pong",
            cpu_client_s: 0.1,
            cpu_server_s: 0.2,
            cpu_per: "1,000 operations",
            server_peak_mib: 3.0,
            more: vec![("extra_us", 1.0, "us")],
        }
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(figure(1_234_567.0), "1,234,567");
        assert_eq!([figure(123.4), figure(12.34), figure(1.234)], ["123", "12.3", "1.23"]);
    }

    #[test]
    fn each_figure_is_the_median_of_the_runs() {
        let runs = [(9.0, 2.0), (1.0, 5.0), (5.0, 90.0)].map(|(value, extra)| BenchReport {
            more: vec![("extra_us", extra, "us")],
            ceiling: 10.0 + extra,
            ..report(value)
        });
        let median = BenchReport::median(runs.into()).expect("there are runs");
        let json = median.to_json();
        assert_eq!([&json["value"], &json["ceiling"], &json["extra_us"]], [5.0, 15.0, 5.0]);
        assert_eq!(json["ratio"], 5.0 / 15.0);
        for field in ["scenario", "unit", "ceiling", "cpu_client_s", "cpu_server_s", "server_peak_mib"] {
            assert!(!json[field].is_null(), "{field}");
        }
        assert!(BenchReport::median(Vec::new()).is_none());
    }
}
