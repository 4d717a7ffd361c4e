//! Every scenario with a name, under a few seeds.

use frieze_sim::SCENARIOS;

#[test]
fn every_scenario_ends_well() {
    let failures: Vec<String> = SCENARIOS
        .iter()
        .filter_map(|scenario| {
            let violation = (scenario.play)(1).err()?;
            Some(format!("{}: {violation}\n  see it again: cargo xtask sim {} --seed 1", scenario.name, scenario.name))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
