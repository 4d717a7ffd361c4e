//! Any text in the place of a server's settings: settings or an error that names what is wrong.

use frieze_node::Settings;

frieze_harness::count_allocations!();

#[test]
fn any_text_is_settings_that_print_and_parse_back_or_refused() {
    let defaults = toml::to_string(&Settings::default()).expect("settings print");
    let example = include_str!("../../../contrib/frieze.toml");
    let seeds = vec![
        defaults.as_str(),
        example,
        "dir = \"d\"\nflush_delay = \"20ms\"\nscrub_every = \"0s\"\nreserve_bytes = 18446744073709551615\n",
    ];
    frieze_harness::fuzz!(frieze_harness::Inputs::from(seeds).with_buffers(1 << 20), |bytes: &[u8]| {
        let Some(Ok(settings)) = std::str::from_utf8(bytes).ok().map(toml::from_str::<Settings>) else { return };
        let text = toml::to_string(&settings).expect("settings print");
        let again: Settings = toml::from_str(&text).expect("what was printed");
        assert_eq!(toml::to_string(&again).expect("settings print"), text);
    });
}
