//! Figures 9 to 15, 18 and 20 of the study, on any load.
//!
//! Guarantees: all figures are simulated together, in one walk of the load for each model of replication.
//! Leaves to others: drawing, and agreement with the study's numbers.
//!
//! # Source
//! Harter et al. (FAST'14), §5 and §6.

use frieze_tier::{OnFlashHit, Writes};

use crate::answer::TriedSystem;
use crate::costs::{CrashCost, SystemCosts, flash_years, justified};
use crate::error::WhatIfError;
use crate::hardware::HardwareProfile;
use crate::local::{LocalLoad, ReplicationModel, ReplicationSettings};
use crate::outcome::SimOutcome;
use crate::simulation::{SystemConfig, SystemPolicies};
use crate::sweep::{SweepLimits, SystemSweep};
use crate::workload::{IoPurpose, RecordedLoad};

/// Numbers of the figures.
pub const FIGURES: &[u32] = &[9, 10, 11, 12, 13, 14, 15, 18, 20];

/// A figure as a table.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureTable {
    /// Its number in the study.
    pub figure: u32,
    /// What it shows.
    pub title: &'static str,
    /// Names of columns: what was varied, then what came out.
    pub columns: Vec<&'static str>,
    /// A row a system.
    pub rows: Vec<Vec<String>>,
    /// Why rows are missing, if they are.
    pub missing: Option<String>,
}

/// The systems of all figures, ready to be simulated.
#[derive(Clone, Debug)]
pub struct FigurePlan {
    scale: u32,
    figures: Vec<PlannedFigure>,
}

#[derive(Clone, Debug)]
struct PlannedFigure {
    figure: u32,
    title: &'static str,
    varied: &'static [&'static str],
    values: &'static [&'static str],
    runs: Vec<PlannedRun>,
    missing: Option<String>,
}

#[derive(Clone, Debug)]
struct PlannedRun {
    labels: Vec<String>,
    hardware: HardwareProfile,
    model: ReplicationModel,
    system: SystemConfig,
    /// Of a crash: the run without it, and when it happens.
    without_crash: Option<(usize, u64)>,
}

impl FigurePlan {
    /// The figures on `base`, for a load that is one in `scale` of a machine's files and lasts `span_us`.
    ///
    /// # Errors
    /// `UnknownSetting` and `OutOfRange` cannot happen with a valid `base`; a figure whose systems cannot be says so in
    /// [`FigureTable::missing`].
    pub fn new(
        base: &HardwareProfile,
        policies: &SystemPolicies,
        scale: u32,
        span_us: u64,
    ) -> Result<FigurePlan, WhatIfError> {
        let mut plan = FigurePlan { scale, figures: Vec::new() };
        plan.disks(base, policies)?;
        plan.caches(base, policies)?;
        plan.crashes(base, policies, span_us)?;
        plan.buffers(base, policies)?;
        plan.prices(base, policies)?;
        plan.layers(base, policies)?;
        Ok(plan)
    }

    /// Systems of all figures.
    pub fn systems(&self) -> usize {
        self.figures.iter().map(|figure| figure.runs.len()).sum()
    }

    /// Simulates all of them. `progress` gets accesses done and their number; it returns false to stop, and then there
    /// are no tables.
    ///
    /// # Errors
    /// Those of [`SystemSweep::new`].
    pub fn run(
        &self,
        load: &RecordedLoad,
        replication: &ReplicationSettings,
        limits: SweepLimits,
        progress: &(dyn Fn(u64, u64) -> bool + Sync),
    ) -> Result<Vec<FigureTable>, WhatIfError> {
        let runs: Vec<&PlannedRun> = self.figures.iter().flat_map(|figure| &figure.runs).collect();
        let mut outcomes: Vec<Option<SimOutcome>> = vec![None; runs.len()];
        let (mut before, mut rest) = (0, runs.len());
        for model in [ReplicationModel::Hdfs, ReplicationModel::LocalCompaction] {
            let of_model: Vec<usize> = (0..runs.len()).filter(|at| runs[*at].model == model).collect();
            let local = LocalLoad::lower(load, &ReplicationSettings { model, ..*replication });
            let systems: Vec<SystemConfig> = of_model.iter().map(|at| runs[*at].system.clone()).collect();
            let sweep = SystemSweep::new(&local, &systems, limits)?;
            rest -= systems.len();
            let all = before + sweep.accesses() + rest as u64 * local.accesses().len() as u64;
            let swept = sweep.run(&|done| progress(before + done, all));
            before += sweep.accesses();
            for (at, outcome) in of_model.into_iter().zip(swept) {
                outcomes[at] = outcome;
            }
        }
        let Some(outcomes) = outcomes.into_iter().collect::<Option<Vec<SimOutcome>>>() else { return Ok(Vec::new()) };
        let mut first = 0;
        let tables = self.figures.iter().map(|figure| {
            let of_figure = &outcomes[first..first + figure.runs.len()];
            first += figure.runs.len();
            self.table(figure, of_figure)
        });
        Ok(tables.collect())
    }

    fn table(&self, figure: &PlannedFigure, outcomes: &[SimOutcome]) -> FigureTable {
        let tried: Vec<TriedSystem> = figure
            .runs
            .iter()
            .zip(outcomes)
            .map(|(run, outcome)| TriedSystem::scaled(&run.hardware, &run.system, outcome.clone(), self.scale))
            .collect();
        let priced: Vec<(f64, f64)> = tried
            .iter()
            .map(|system| (system.costs.map_or(0.0, |costs| costs.capex), system.outcome.foreground_ms()))
            .collect();
        let is_justified = justified(&priced);
        let mut rows = Vec::new();
        for (at, run) in figure.runs.iter().enumerate() {
            let mut row = run.labels.clone();
            let crash =
                run.without_crash.map(|(without, at_us)| CrashCost::of(&outcomes[without], &outcomes[at], at_us));
            row.extend(figure.values.iter().map(|value| match *value {
                "justified" => tried[at].costs.map_or(String::new(), |_| is_justified[at].to_string()),
                "extra read GB" => {
                    crash.map_or(String::new(), |cost| {
                        number(cost.extra_read_bytes as f64 * f64::from(self.scale) / GIB)
                    })
                }
                "recovered h" => {
                    crash.and_then(|cost| cost.recovered_us).map_or(String::new(), |us| number(us as f64 / 3.6e9))
                }
                value => value_of(&tried[at], value, self.scale).map_or(String::new(), number),
            }));
            rows.push(row);
        }
        let columns = figure.varied.iter().chain(figure.values).copied().collect();
        FigureTable { figure: figure.figure, title: figure.title, columns, rows, missing: figure.missing.clone() }
    }

    fn begin(
        &mut self,
        figure: u32,
        title: &'static str,
        varied: &'static [&'static str],
        values: &'static [&'static str],
    ) {
        self.figures.push(PlannedFigure { figure, title, varied, values, runs: Vec::new(), missing: None });
    }

    /// A run of the figure that was begun last.
    fn add(
        &mut self,
        labels: &[String],
        base: &HardwareProfile,
        settings: &[(&str, String)],
        policies: SystemPolicies,
        model: ReplicationModel,
    ) -> Result<(), WhatIfError> {
        let mut hardware = base.clone();
        for (setting, value) in settings {
            hardware.set(setting, value)?;
        }
        let system = hardware.shrunk(self.scale).and_then(|shrunk| SystemConfig::new(shrunk, policies));
        let figure = self.figures.last_mut().expect("a figure was begun");
        match system {
            Ok(system) => {
                figure.runs.push(PlannedRun { labels: labels.to_vec(), hardware, model, system, without_crash: None })
            }
            Err(error) => figure.missing = Some(error.to_string()),
        }
        Ok(())
    }

    fn disks(&mut self, base: &HardwareProfile, policies: &SystemPolicies) -> Result<(), WhatIfError> {
        self.begin(9, "Disk performance", &["varied", "value"], &["disk latency ms", "foreground ms"]);
        let varied: [(&str, &[u32]); 3] = [
            ("disks", &[5, 10, 15, 20, 25]),
            ("disk.bandwidth", &[50, 100, 200, 400]),
            ("disk.seek", &[2, 4, 6, 8, 10]),
        ];
        for (setting, values) in varied {
            for value in values {
                let value = value.to_string();
                self.add(
                    &[setting.to_owned(), value.clone()],
                    base,
                    &[(setting, value)],
                    policies.clone(),
                    ReplicationModel::Hdfs,
                )?;
            }
        }
        Ok(())
    }

    fn caches(&mut self, base: &HardwareProfile, policies: &SystemPolicies) -> Result<(), WhatIfError> {
        let caches = || SystemPolicies { with_disks: false, ..policies.clone() };
        self.begin(10, "Cache hit rate", &["writes", "ram GB"], &["hit ratio"]);
        for (name, writes) in WRITES {
            for ram in [10, 30, 60, 90, 120, 160, 200, 250, 300, 400] {
                let policies = SystemPolicies { writes, ..caches() };
                let settings = [("ram", ram.to_string()), ("flash", "0".to_owned())];
                self.add(&[name.to_owned(), ram.to_string()], base, &settings, policies, ReplicationModel::Hdfs)?;
            }
        }
        for (figure, title, values) in [
            (11, "Tiered hit rates", &["hit ratio", "ram hit ratio"][..]),
            (12, "Flash lifetime", &["flash years", "flash GB a day"][..]),
        ] {
            self.begin(figure, title, &["on flash hit", "ram GB", "flash GB"], values);
            for (name, on_flash_hit) in [("promote", OnFlashHit::Promote), ("keep", OnFlashHit::Keep)] {
                for ram in [10, 30, 100] {
                    for flash in [20, 60, 120, 240] {
                        let policies = SystemPolicies { on_flash_hit, ..caches() };
                        let settings = [("ram", ram.to_string()), ("flash", flash.to_string())];
                        let labels = [name.to_owned(), ram.to_string(), flash.to_string()];
                        self.add(&labels, base, &settings, policies, ReplicationModel::Hdfs)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn crashes(&mut self, base: &HardwareProfile, policies: &SystemPolicies, span_us: u64) -> Result<(), WhatIfError> {
        self.begin(13, "Crash simulations", &["flash %", "crash at h"], &["extra read GB", "recovered h", "hit ratio"]);
        for percent in [0u64, 25, 50, 75, 100] {
            let settings = [("ram", (100 - percent).to_string()), ("flash", percent.to_string())];
            let first = self.figures.last().map_or(0, |figure| figure.runs.len());
            for crash in 0..=4 {
                let crash_us = span_us / 5 * crash;
                let crashes_us = if crash == 0 { Vec::new() } else { vec![crash_us] };
                let policies = SystemPolicies { with_disks: false, crashes_us, ..policies.clone() };
                let at = if crash == 0 { "none".to_owned() } else { number(crash_us as f64 / 3.6e9) };
                self.add(&[percent.to_string(), at], base, &settings, policies, ReplicationModel::Hdfs)?;
                if let Some(run) =
                    self.figures.last_mut().and_then(|figure| figure.runs.last_mut()).filter(|_| crash > 0)
                {
                    run.without_crash = Some((first, crash_us));
                }
            }
        }
        Ok(())
    }

    fn buffers(&mut self, base: &HardwareProfile, policies: &SystemPolicies) -> Result<(), WhatIfError> {
        self.begin(14, "Flash buffer", &["disks", "flash GB", "below"], &["foreground ms"]);
        for disks in [10, 15] {
            for flash in [60, 120, 240] {
                for below in [0u64, 1 << 20, 16 << 20, 64 << 20, 128 << 20, 512 << 20, u64::MAX] {
                    let policies = SystemPolicies { buffer_below: (below > 0).then_some(below), ..policies.clone() };
                    let settings = [("disks", disks.to_string()), ("flash", flash.to_string())];
                    let name = match below {
                        0 => "none".to_owned(),
                        u64::MAX => "all".to_owned(),
                        below => format!("{} MB", below >> 20),
                    };
                    let labels = [disks.to_string(), flash.to_string(), name];
                    self.add(&labels, base, &settings, policies, ReplicationModel::Hdfs)?;
                }
            }
        }
        Ok(())
    }

    fn prices(&mut self, base: &HardwareProfile, policies: &SystemPolicies) -> Result<(), WhatIfError> {
        let values =
            &["capex $", "opex $", "opex with ram $", "foreground ms", "hit ratio", "flash years", "justified"];
        self.begin(15, "Capex/latency tradeoff", &["ram GB", "flash GB", "disks"], values);
        for ram in [10, 30, 100] {
            for flash in [0, 60, 120, 240] {
                for disks in [10, 15, 20] {
                    let sizes = [ram, flash, disks].map(|size: u32| size.to_string());
                    let settings =
                        [("ram", sizes[0].clone()), ("flash", sizes[1].clone()), ("disks", sizes[2].clone())];
                    self.add(&sizes, base, &settings, policies.clone(), ReplicationModel::Hdfs)?;
                }
            }
        }
        Ok(())
    }

    fn layers(&mut self, base: &HardwareProfile, policies: &SystemPolicies) -> Result<(), WhatIfError> {
        let values = &["net TB", "disk read TB"];
        self.begin(18, "Local-compaction results", &["compaction", "writes", "cache GB"], values);
        for (name, model) in [("central", ReplicationModel::Hdfs), ("local", ReplicationModel::LocalCompaction)] {
            for (writes_name, writes) in WRITES.into_iter().take(2) {
                for ram in [0, 30, 100, 200, 400] {
                    let policies = SystemPolicies { with_disks: false, writes, ..policies.clone() };
                    let settings = [("ram", ram.to_string()), ("flash", "0".to_owned())];
                    self.add(
                        &[name.to_owned(), writes_name.to_owned(), ram.to_string()],
                        base,
                        &settings,
                        policies,
                        model,
                    )?;
                }
            }
        }
        let values = &["foreground ms", "read ms", "compaction ms", "log ms"];
        self.begin(20, "Combined logging results", &["logs", "disks"], values);
        for (name, combined_log) in [("separate", false), ("combined", true)] {
            for disks in [10, 15, 20, 25] {
                let policies = SystemPolicies { combined_log, ..policies.clone() };
                let labels = [name.to_owned(), disks.to_string()];
                self.add(&labels, base, &[("disks", disks.to_string())], policies, ReplicationModel::Hdfs)?;
            }
        }
        Ok(())
    }
}

impl TriedSystem {
    /// What a simulation of one in `scale` files says of the whole.
    pub fn scaled(hardware: &HardwareProfile, system: &SystemConfig, outcome: SimOutcome, scale: u32) -> TriedSystem {
        let whole = outcome.faster(hardware.slowdown(scale));
        let (costs, years) = (SystemCosts::of(hardware, &whole, scale), flash_years(hardware, &whole, scale));
        TriedSystem {
            hardware: hardware.clone(),
            policies: system.policies.clone(),
            outcome: whole,
            costs,
            flash_years: years,
        }
    }
}

/// A value by the name of its column; `None` where there is none.
fn value_of(system: &TriedSystem, name: &str, scale: u32) -> Option<f64> {
    let outcome = &system.outcome;
    let scale = f64::from(scale);
    let of_purpose = |purpose| outcome.queue_ms(Some(purpose)) + outcome.exec_ms(Some(purpose));
    let is_slow = outcome.overloaded && name.ends_with(" ms");
    Some(match name {
        _ if is_slow => f64::INFINITY,
        "hit ratio" => outcome.hit_ratio(),
        "ram hit ratio" => outcome.ram_hit_ratio(),
        "disk latency ms" => outcome.disk_latency_ms(),
        "foreground ms" => outcome.foreground_ms(),
        "read ms" => of_purpose(IoPurpose::Read),
        "compaction ms" => of_purpose(IoPurpose::Compaction),
        "log ms" => of_purpose(IoPurpose::Log),
        "flash years" => system.flash_years?,
        "flash GB a day" => outcome.flash_bytes_a_year() * scale / 365.25 / GIB,
        "net TB" => outcome.net_bytes as f64 * scale / (1024.0 * GIB),
        "disk read TB" => outcome.disk_read_bytes as f64 * scale / (1024.0 * GIB),
        "capex $" => system.costs?.capex,
        "opex $" => system.costs?.opex,
        "opex with ram $" => system.costs?.opex_with_ram,
        _ => return None,
    })
}

fn number(value: f64) -> String {
    if !value.is_finite() {
        return if value > 0.0 { "inf" } else { "" }.to_owned();
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

const WRITES: [(&str, Writes); 3] =
    [("no-write-allocate", Writes::NoAllocate), ("write-allocate", Writes::Allocate), ("hints", Writes::Hinted)];
/// 2^30.
const GIB: f64 = 1_073_741_824.0;
