//! The answer in words: what the present system does, what is worth its price, what is not.
//!
//! Guarantees: every sentence has its numbers from the systems that were simulated.

use frieze_tier::OnFlashHit;

use crate::costs::{SystemCosts, justified};
use crate::hardware::HardwareProfile;
use crate::outcome::{SimOutcome, ratio};
use crate::simulation::SystemPolicies;

/// A system, what it did and what it costs.
#[derive(Clone, Debug)]
pub struct TriedSystem {
    /// Its hardware, not scaled down.
    pub hardware: HardwareProfile,
    /// Its policies.
    pub policies: SystemPolicies,
    /// What was counted; bytes are those of the sample.
    pub outcome: SimOutcome,
    /// Dollars, if all prices are known.
    pub costs: Option<SystemCosts>,
    /// Years until flash is worn out; `None` without flash.
    pub flash_years: Option<f64>,
}

/// Sentences, and which systems are worth their price.
#[derive(Clone, Debug, Default)]
pub struct WhatIfAnswer {
    /// Sentences: a label and words.
    pub sentences: Vec<(String, String)>,
    /// By system: true if no other is as cheap and as fast. Empty without prices.
    pub justified: Vec<bool>,
}

/// `30 GB, 60 GB flash, 15 disks`.
pub fn name_of(hardware: &HardwareProfile) -> String {
    let size = |setting: &str| amount(hardware.get(setting).unwrap_or(0.0));
    let flash = if hardware.flash_bytes() > 0 { format!(", {} GB flash", size("flash.size")) } else { String::new() };
    format!("{} GB{flash}, {}", size("ram.size"), disks(hardware.disks()))
}

/// The system that is faster than `systems[base]` by most for at most a tenth more money; the fastest without prices.
pub fn best_for_little(systems: &[TriedSystem], base: usize) -> Option<usize> {
    let now = &systems[base];
    let is_cheap = |system: &TriedSystem| match (&system.costs, &now.costs) {
        (Some(costs), Some(present)) => costs.price() <= present.price() * LITTLE_MONEY,
        _ => true,
    };
    let faster = (0..systems.len()).filter(|at| {
        let system = &systems[*at];
        speedup(now, system) > WORTH_NAMING && is_cheap(system) && !system.outcome.overloaded
    });
    faster.min_by(|one, other| {
        let of =
            |at: usize| (systems[at].outcome.foreground_ms(), systems[at].costs.map_or(0.0, |costs| costs.price()));
        of(*one).partial_cmp(&of(*other)).unwrap_or(std::cmp::Ordering::Equal)
    })
}

impl WhatIfAnswer {
    /// The answer for `systems`, of which that at `base` is the present one. `kept` is the best one with its pages kept
    /// in flash, if that was tried.
    pub fn of(systems: &[TriedSystem], base: usize, kept: Option<&TriedSystem>) -> WhatIfAnswer {
        let now = &systems[base];
        let mut answer = WhatIfAnswer::default();
        answer.say("You have", present(now));
        let best = best_for_little(systems, base);
        if let Some(best) = best.map(|best| &systems[best]) {
            let wears =
                best.flash_years.map_or(String::new(), |years| format!("   (wears out in {})", in_years(years)));
            let words = format!("{:24} {}{wears}", difference(now, best), gain(now, best));
            answer.say(if best.costs.is_some() { "Best for little money" } else { "Fastest" }, words);
        } else if systems.len() > 1 {
            answer.say("Nothing to gain", "no system here is faster by 5 % for a tenth more money".to_owned());
        }
        if let Some(worst) = not_worth(systems, base) {
            let words = format!("{:24} {}", difference(now, &systems[worst]), gain(now, &systems[worst]));
            answer.say("Not worth it", words);
        }
        if let (Some(kept), Some(best)) = (kept, best.map(|best| &systems[best])) {
            answer.say("Careful", flash_choice(best, kept));
        }
        let overloaded: Vec<String> =
            systems.iter().filter(|system| system.outcome.overloaded).map(|system| name_of(&system.hardware)).collect();
        if !overloaded.is_empty() {
            let words = format!("requests come faster than disks serve them: {}", overloaded.join("; "));
            answer.say("Overloaded", words);
        }
        let priced: Option<Vec<(f64, f64)>> = systems
            .iter()
            .map(|system| {
                let latency = if system.outcome.overloaded { f64::INFINITY } else { system.outcome.foreground_ms() };
                Some((system.costs?.price(), latency))
            })
            .collect();
        if let Some(priced) = priced {
            answer.justified = justified(&priced);
            let count = answer.justified.iter().filter(|is| **is).count();
            if systems.len() > 1 {
                answer.say("Worth their price", format!("{count} of {} systems", systems.len()));
            }
            if let Some((cheapest, next)) = first_step(systems, &answer.justified) {
                let words = format!("{:24} {}", difference(cheapest, next), gain(cheapest, next));
                answer.say(&format!("From {}", name_of(&cheapest.hardware)), words);
            }
        }
        answer
    }

    /// The answer for `systems` under a sample of frames, which has hits and no latencies.
    pub fn of_sample(systems: &[TriedSystem]) -> WhatIfAnswer {
        let mut answer = WhatIfAnswer::default();
        let hits = |system: &TriedSystem| {
            let error = system
                .outcome
                .hit_ratio_error()
                .map_or(String::new(), |error| format!(" +- {:.1} points", 100.0 * error));
            let outcome = &system.outcome;
            format!("{}: caches serve {:.1} %{error} of reads", name_of(&system.hardware), 100.0 * outcome.hit_ratio())
        };
        if let Some(now) = systems.first() {
            answer.say("You have", hits(now));
        }
        let most = systems.iter().max_by(|one, other| one.outcome.hit_ratio().total_cmp(&other.outcome.hit_ratio()));
        if let Some(most) = most.filter(|_| systems.len() > 1) {
            answer.say("Most hits", hits(most));
        }
        answer
    }

    fn say(&mut self, label: &str, words: String) {
        self.sentences.push((label.to_owned(), words));
    }
}

/// The cheapest system that is worth its price, and the next one.
fn first_step<'s>(systems: &'s [TriedSystem], justified: &[bool]) -> Option<(&'s TriedSystem, &'s TriedSystem)> {
    let mut worth: Vec<&TriedSystem> = systems
        .iter()
        .zip(justified)
        .filter(|(system, is)| **is && system.costs.is_some())
        .map(|(system, _)| system)
        .collect();
    let price = |system: &TriedSystem| system.costs.map_or(0.0, |costs| costs.price());
    worth.sort_by(|one, other| price(one).total_cmp(&price(other)));
    Some((*worth.first()?, *worth.get(1)?))
}

fn present(now: &TriedSystem) -> String {
    let outcome = &now.outcome;
    let reads = match outcome.foreground_pages {
        0 => "no reads to wait for".to_owned(),
        _ => format!(
            "reads wait {} ms on average, {} ms where memory lacks them",
            figure(outcome.foreground_ms()),
            figure(outcome.foreground_slow_ms())
        ),
    };
    format!(
        "{}: {reads}; caches serve {:.0} % of them; writes are {:.0} % of what your disks move; a disk is busy {:.0} %",
        name_of(&now.hardware),
        100.0 * outcome.hit_ratio(),
        100.0 * outcome.written_part(),
        100.0 * outcome.utilisation()
    )
}

/// The system that differs in one size, costs most more and gains least.
fn not_worth(systems: &[TriedSystem], base: usize) -> Option<usize> {
    let now = &systems[base];
    let present = now.costs?;
    let more = |system: &TriedSystem| system.costs.map_or(0.0, |costs| costs.price() / present.price() - 1.0);
    (0..systems.len())
        .filter(|at| {
            let system = &systems[*at];
            let sizes = ["ram.size", "flash.size", "disk.count"];
            let changed = sizes.iter().filter(|size| system.hardware.get(size) != now.hardware.get(size)).count();
            let gains = speedup(now, system) - 1.0;
            changed == 1 && more(system) > 0.05 && gains < more(system) / 4.0 && !system.outcome.overloaded
        })
        .max_by(|one, other| more(&systems[*one]).total_cmp(&more(&systems[*other])))
}

fn flash_choice(best: &TriedSystem, kept: &TriedSystem) -> String {
    let promotes = best.policies.on_flash_hit == OnFlashHit::Promote;
    let (promote, keep) = if promotes { (best, kept) } else { (kept, best) };
    let years = |system: &TriedSystem| system.flash_years.unwrap_or(f64::INFINITY);
    let slower = ratio(keep.outcome.foreground_ms(), promote.outcome.foreground_ms()) - 1.0;
    format!(
        "with {} promote on flash hits wears flash out in {}, keep in {}; keep costs {:.0} % of latency",
        name_of(&best.hardware),
        in_years(years(promote)),
        in_years(years(keep)),
        100.0 * slower
    )
}

/// `+ 60 GB flash - 5 disks`.
fn difference(now: &TriedSystem, other: &TriedSystem) -> String {
    let sizes = [("ram.size", " GB memory"), ("flash.size", " GB flash"), ("disk.count", " disks")];
    let parts: Vec<String> = sizes
        .into_iter()
        .filter_map(|(setting, unit)| {
            let of = |system: &TriedSystem| system.hardware.get(setting).unwrap_or(0.0);
            let more = of(other) - of(now);
            let sign = if more > 0.0 { '+' } else { '-' };
            (more != 0.0).then(|| format!("{sign} {}{unit}", amount(more.abs())))
        })
        .collect();
    parts.join(" ")
}

fn gain(now: &TriedSystem, other: &TriedSystem) -> String {
    let money = match (&now.costs, &other.costs) {
        (Some(present), Some(costs)) => format!(" for {:+.1} %", 100.0 * (costs.price() / present.price() - 1.0)),
        _ => String::new(),
    };
    format!("{:.2}x faster reads{money}", speedup(now, other))
}

fn speedup(now: &TriedSystem, other: &TriedSystem) -> f64 {
    match ratio(now.outcome.foreground_ms(), other.outcome.foreground_ms()) {
        // It waits for nothing.
        0.0 if now.outcome.foreground_ms() > 0.0 => f64::INFINITY,
        0.0 => 1.0,
        speedup => speedup,
    }
}

fn disks(count: u32) -> String {
    if count == 0 {
        "an object store".to_owned()
    } else if count == 1 {
        "1 disk".to_owned()
    } else {
        format!("{count} disks")
    }
}

fn amount(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn in_years(years: f64) -> String {
    match years {
        years if years >= 100.0 => "over a hundred years".to_owned(),
        years => format!("{years:.1} years"),
    }
}

/// Three digits.
fn figure(number: f64) -> String {
    match number {
        number if number >= 100.0 => format!("{number:.0}"),
        number if number >= 10.0 => format!("{number:.1}"),
        number => format!("{number:.2}"),
    }
}

/// A tenth more.
const LITTLE_MONEY: f64 = 1.1;
/// Faster by less is nothing to name.
const WORTH_NAMING: f64 = 1.05;
