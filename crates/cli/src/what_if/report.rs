//! The answer of `what-if` as lines, as JSON, and as files.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Result;
use frieze_whatif::{FigureTable, HardwareProfile, RENT_YEARS, RecordedLoad, TriedSystem, WhatIfAnswer, name_of};
use serde_json::{Value, json};

use crate::format::{self, TextTable};

/// What was asked and what came out.
pub(super) struct WhatIfReport<'a> {
    pub(super) answer: &'a WhatIfAnswer,
    pub(super) systems: &'a [TriedSystem],
    pub(super) base: &'a HardwareProfile,
    pub(super) load: &'a RecordedLoad,
    /// One in so many files and, of a sample, frames.
    pub(super) scale: u32,
    /// One in so many frames; 1 for all.
    pub(super) sample: u32,
    pub(super) trace: &'a Path,
}

impl WhatIfReport<'_> {
    /// For people: words first, then tables, then what was assumed.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            self.answer.sentences.iter().map(|(label, words)| format!("{label:<22}{words}")).collect();
        lines.push(String::new());
        if self.systems.len() > 1 {
            lines.extend(self.table());
            lines.push(String::new());
        }
        if let Some(now) = self.systems.first().filter(|_| self.sample == 1) {
            lines.push(format!(
                "The present system, {} of the trace:",
                format::duration_ms(now.outcome.counted_us / 1000)
            ));
            let mut table = TextTable::new(&[false, true]);
            for (name, value) in now.outcome.table1(self.scale) {
                table.row([name.to_owned(), format!("{value:.3}")]);
            }
            lines.extend(table.lines());
        }
        lines.push(String::new());
        lines.push("It assumes:".to_owned());
        lines.extend(self.assumptions().into_iter().map(|words| format!("- {words}")));
        lines
    }

    /// Systems under a sample of frames: it has no latencies.
    fn table_of_sample(&self) -> Vec<String> {
        let mut table = TextTable::new(&[false, true, true, true, true, true]);
        table.row(["SYSTEM", "HITS", "+-", "IN RAM", "FLASH YEARS", "PRICE"].map(str::to_owned));
        for system in self.systems {
            let outcome = &system.outcome;
            table.row([
                name_of(&system.hardware),
                format!("{:.1} %", 100.0 * outcome.hit_ratio()),
                outcome.hit_ratio_error().map_or(String::new(), |error| format!("{:.1}", 100.0 * error)),
                format!("{:.1} %", 100.0 * outcome.ram_hit_ratio()),
                system.flash_years.map_or(String::new(), |years| format!("{years:.1}")),
                system.costs.map_or(String::new(), |costs| format!("${:.0}", costs.price())),
            ]);
        }
        table.lines().collect()
    }

    fn table(&self) -> Vec<String> {
        if self.sample > 1 {
            return self.table_of_sample();
        }
        let mut table = TextTable::new(&[false, true, true, true, true, true, true, true, false]);
        table.row(
            ["SYSTEM", "READ MS", "P99 MS", "HITS", "IN RAM", "BUSY", "FLASH YEARS", "PRICE", "WORTH IT"]
                .map(str::to_owned),
        );
        for (at, system) in self.systems.iter().enumerate() {
            let outcome = &system.outcome;
            let ms = |ms: f64| if outcome.overloaded { "overloaded".to_owned() } else { format!("{ms:.3}") };
            table.row([
                name_of(&system.hardware),
                ms(outcome.foreground_ms()),
                ms(outcome.foreground_runs.quantile_ns(0.99) as f64 / 1e6),
                format!("{:.1} %", 100.0 * outcome.hit_ratio()),
                format!("{:.1} %", 100.0 * outcome.ram_hit_ratio()),
                format!("{:.1} %", 100.0 * outcome.utilisation()),
                system.flash_years.map_or(String::new(), |years| format!("{years:.1}")),
                system.costs.map_or(String::new(), |costs| format!("${:.0}", costs.price())),
                if self.answer.justified.get(at) == Some(&true) { "yes" } else { "" }.to_owned(),
            ]);
        }
        table.lines().collect()
    }

    /// What the answer stands on.
    pub(super) fn assumptions(&self) -> Vec<String> {
        let mut all = self.load.assumptions().to_vec();
        let data = self.load.bytes_of_files();
        let cache = (self.base.ram_bytes() + self.base.flash_bytes()) / u64::from(self.scale / self.sample);
        if cache > data {
            let words = "the caches are larger than all files of the trace";
            all.push(format!("{words} ({} for {}): only first reads miss", format::size(cache), format::size(data)));
        }
        let of_files = self.scale / self.sample;
        if of_files > 1 {
            all.push(format!(
                "the trace has one in {of_files} files of a machine: memory, flash and disks are divided by it, and \
                 rates are those of all files"
            ));
        }
        if self.sample > 1 {
            all.push(format!(
                "caches are simulated under one in {} frames of 64 KiB, chosen by a hash, and are as much smaller; \
                 +- is two standard errors, from how much 64 groups of these frames differ",
                self.sample
            ));
        }
        if self.systems.iter().any(|system| system.hardware.disks() == 0) {
            all.push(format!("the price of an object store is its rent of {RENT_YEARS} years"));
            all.push(
                "an object store answers any number of requests at once, makes its copies itself, and takes writes in \
                 whole parts; its network is in its latency"
                    .to_owned(),
            );
        }
        if self.sample == 1 && self.systems.iter().any(|system| system.hardware.slowdown(of_files) != 1.0) {
            all.push(
                "a part of a disk is simulated as a slower disk, and waits are divided by as much: exact where \
                 requests arrive independently (a trace of 1/5 or 1/15 needs no such parts)"
                    .to_owned(),
            );
        }
        if self.systems.iter().any(|system| system.costs.is_none()) {
            all.push(format!("profile {} lacks prices: no costs (--set disk.price=100 and others)", self.base.name()));
        }
        all.push("requests begin when the trace says, whatever the hardware".to_owned());
        all.push(
            "a disk serves files in turn, and within a file upward; pages of removed files age out of caches"
                .to_owned(),
        );
        all
    }

    /// For programs.
    pub(super) fn json(&self, figures: &[FigureTable]) -> Value {
        let systems: Vec<Value> =
            self.systems.iter().enumerate().map(|(at, system)| self.system_json(at, system)).collect();
        let answer: Vec<Value> =
            self.answer.sentences.iter().map(|(label, words)| json!({ "label": label, "words": words })).collect();
        let profile: Vec<Value> = self
            .base
            .numbers()
            .map(|(name, number)| {
                json!({ "name": name, "value": number.value, "source": number.source, "date": number.date })
            })
            .collect();
        let figures: Vec<Value> = figures
            .iter()
            .map(|table| {
                json!({ "figure": table.figure, "title": table.title, "columns": table.columns, "rows": table.rows,
                    "missing": table.missing })
            })
            .collect();
        json!({ "trace": format::local(self.trace), "answer": answer, "assumptions": self.assumptions(),
            "profile": profile, "scale": self.scale, "systems": systems, "figures": figures })
    }

    fn system_json(&self, at: usize, system: &TriedSystem) -> Value {
        let outcome = &system.outcome;
        let finite = |number: f64| number.is_finite().then_some(number);
        let table1: serde_json::Map<String, Value> =
            outcome.table1(self.scale).into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        json!({
            "name": name_of(&system.hardware), "ram_gb": system.hardware.get("ram.size"),
            "flash_gb": system.hardware.get("flash.size"), "disks": system.hardware.disks(),
            "foreground_ms": outcome.foreground_ms(), "foreground_slow_ms": outcome.foreground_slow_ms(),
            "p99_ms": outcome.foreground_runs.quantile_ns(0.99) as f64 / 1e6, "hit_ratio": outcome.hit_ratio(),
            "ram_hit_ratio": outcome.ram_hit_ratio(), "utilisation": outcome.utilisation(),
            "flash_years": system.flash_years.and_then(finite), "capex": system.costs.map(|costs| costs.capex),
            "opex": system.costs.map(|costs| costs.opex),
            "opex_with_ram": system.costs.map(|costs| costs.opex_with_ram),
            "object_gets_a_year": outcome.object.map(|object| {
                object.gets as f64 * f64::from(self.scale) * YEAR_US / (outcome.counted_us as f64).max(1.0)
            }),
            "object_rent": system.costs.filter(|_| outcome.object.is_some()).map(|costs| costs.rent),
            "hit_ratio_error": outcome.hit_ratio_error(),
            "justified": self.answer.justified.get(at), "overloaded": outcome.overloaded, "table1": table1,
        })
    }

    /// Writes `what-if.json`, `systems.csv`, a table of each figure and `price.svg`.
    pub(super) fn write(&self, out: &Path, figures: &[FigureTable]) -> Result<()> {
        fs::create_dir_all(out)?;
        fs::write(out.join("what-if.json"), format!("{:#}\n", format::exact(self.json(figures))))?;
        let mut csv =
            "system,ram_gb,flash_gb,disks,foreground_ms,hit_ratio,ram_hit_ratio,flash_years,capex,opex,justified\n"
                .to_owned();
        for (at, system) in self.systems.iter().enumerate() {
            let size = |setting: &str| system.hardware.get(setting).unwrap_or(0.0);
            let (outcome, costs) = (&system.outcome, system.costs);
            let _ = writeln!(
                csv,
                "\"{}\",{},{},{},{},{},{},{},{},{},{}",
                name_of(&system.hardware),
                size("ram.size"),
                size("flash.size"),
                system.hardware.disks(),
                outcome.foreground_ms(),
                outcome.hit_ratio(),
                outcome.ram_hit_ratio(),
                system.flash_years.map_or(String::new(), |years| years.to_string()),
                costs.map_or(String::new(), |costs| costs.capex.to_string()),
                costs.map_or(String::new(), |costs| costs.opex.to_string()),
                self.answer.justified.get(at).map_or(String::new(), bool::to_string),
            );
        }
        fs::write(out.join("systems.csv"), csv)?;
        for table in figures {
            let mut csv = table.columns.join(",") + "\n";
            table.rows.iter().for_each(|row| csv.push_str(&(row.join(",") + "\n")));
            fs::write(out.join(format!("figure-{}.csv", table.figure)), csv)?;
        }
        if self.systems.len() > 1 && !self.answer.justified.is_empty() {
            fs::write(out.join("price.svg"), self.picture())?;
        }
        Ok(())
    }

    /// Price against latency: justified systems black, named and joined, the others gray (figure 15).
    fn picture(&self) -> String {
        let points: Vec<(f64, f64, bool, String)> = self
            .systems
            .iter()
            .zip(&self.answer.justified)
            .filter(|(system, _)| !system.outcome.overloaded)
            .filter_map(|(system, justified)| {
                let price = system.costs?.price();
                Some((price, system.outcome.foreground_ms(), *justified, name_of(&system.hardware)))
            })
            .collect();
        let most = |of: fn(&(f64, f64, bool, String)) -> f64| points.iter().map(of).fold(1e-9, f64::max) * 1.1;
        let (price, latency) = (most(|point| point.0), most(|point| point.1));
        let x = |capex: f64| LEFT + capex / price * (WIDTH - LEFT - 20.0);
        let y = |ms: f64| HEIGHT - BOTTOM - ms / latency * (HEIGHT - BOTTOM - 20.0);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        for tick in 0..=5 {
            let (capex, ms) = (price * f64::from(tick) / 5.0, latency * f64::from(tick) / 5.0);
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">${capex:.0}</text>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{ms:.1} ms</text>\n\
                 <line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>",
                x(capex),
                HEIGHT - BOTTOM + 16.0,
                LEFT - 6.0,
                y(ms) + 4.0,
                y(ms),
                y(ms),
            );
        }
        let mut front: Vec<&(f64, f64, bool, String)> = points.iter().filter(|point| point.2).collect();
        front.sort_by(|one, other| one.0.total_cmp(&other.0));
        let line: Vec<String> = front.iter().map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1))).collect();
        let _ = writeln!(svg, "<polyline points=\"{}\" fill=\"none\" stroke=\"black\"/>", line.join(" "));
        for (capex, ms, justified, name) in &points {
            let color = if *justified { "black" } else { "#aaa" };
            let (x, y) = (x(*capex), y(*ms));
            let _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{color}\">\
                 <title>{name}: ${capex:.0}, {ms:.2} ms</title></circle>"
            );
            if *justified {
                let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{:.1}\">{name}</text>", x + 6.0, y - 6.0);
            }
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">price of the hardware</text>\n\
             <text x=\"{LEFT}\" y=\"14\">what a read waits on average</text>\n</svg>",
            (LEFT + WIDTH) / 2.0,
            HEIGHT - 6.0
        );
        svg
    }
}

/// Microseconds of a year.
const YEAR_US: f64 = 365.25 * 86_400e6;
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 44.0;
