//! For the fit: reads parameters as JSON lines on standard input, answers each with the numbers of its load.
//!
//! A line is `{"scale": 0.0044, "days": 8.3, "seed": 1, "set": {"users": 1e6, ..}}`; what is not set is as built in.
//! The answer is `{"numbers": {..}, "loss": 12.3, "met": 41, "of": 56}` or `{"error": ".."}`.

use std::io::{BufRead, Write};

use frieze_load::{Comparison, LoadError, LoadSize, Measures, MessagesLoad, MessagesParameters, PaperSource, compare};
use serde_json::{Value, json};

fn main() -> std::io::Result<()> {
    for line in std::io::stdin().lock().lines() {
        let answer = answer(&line?).unwrap_or_else(|error| json!({ "error": error }));
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn answer(line: &str) -> Result<Value, String> {
    let request: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let number = |name: &str, default: f64| request[name].as_f64().unwrap_or(default);
    let mut parameters = serde_json::to_value(MessagesParameters::built_in()).map_err(|error| error.to_string())?;
    for (name, value) in request["set"].as_object().into_iter().flatten() {
        // `family.touch.Actions` is a field of one family.
        let place = match name.strip_prefix("family.").and_then(|rest| rest.split_once('.')) {
            None => &mut parameters[name.as_str()],
            Some((field, family)) => {
                let families = parameters["family"].as_array_mut().ok_or("no families")?;
                let found = families.iter_mut().find(|of| of["name"] == family);
                &mut found.ok_or_else(|| format!("no family {family}"))?[field]
            }
        };
        *place = value.clone();
    }
    let parameters: MessagesParameters = serde_json::from_value(parameters).map_err(|error| error.to_string())?;
    let size =
        LoadSize { scale: number("scale", 1.0 / 225.0), days: number("days", 8.3), seed: number("seed", 1.0) as u64 };
    let mut load = MessagesLoad::new(parameters, size).map_err(|error| error.to_string())?;
    if request["whole_log"] != true {
        load = load.with_log_bursts();
    }
    let mut measures = Measures::new(&load);
    load.run(|event| -> Result<(), LoadError> {
        measures.add(event);
        Ok(())
    })
    .map_err(|error| error.to_string())?;
    let numbers = measures.numbers();
    let comparisons = compare(&numbers);
    // Beyond five tolerances a number pulls gently: the others are not given up for it.
    let loss: f64 = (comparisons.iter())
        .map(|comparison| {
            let weight = if comparison.number.source == PaperSource::Printed { 1.0 } else { 0.5 };
            let distance = comparison
                .model
                .map_or(5.0, |model| comparison.number.tolerance.distance(model, comparison.number.paper));
            weight * (distance.min(5.0).powi(2) + (distance - 5.0).clamp(0.0, 20.0))
        })
        .sum();
    let met = comparisons.iter().filter(|comparison| comparison.is_met()).count();
    Ok(json!({
        "numbers": numbers, "loss": loss, "met": met, "of": comparisons.len(), "events": measures.events(),
        "comparisons": table(&comparisons),
    }))
}

fn table(comparisons: &[Comparison]) -> Vec<Value> {
    let row = |comparison: &Comparison| {
        let number = comparison.number;
        let source = if number.source == PaperSource::Printed { "printed" } else { "derived" };
        json!({
            "name": number.name, "about": number.about, "model": comparison.model, "paper": number.paper,
            "tolerance": number.tolerance.to_string(), "source": source, "met": comparison.is_met(),
        })
    };
    comparisons.iter().map(row).collect()
}
