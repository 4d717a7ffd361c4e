use super::*;

#[test]
fn figures_stay_on_this_machine_unless_a_host_is_named() {
    let at = |setting: &str| address_of(setting).map(|address| address.to_string()).map_err(|fault| fault.reason);
    assert_eq!(at("9470").as_deref(), Ok("127.0.0.1:9470"));
    assert_eq!(at(":9470").as_deref(), Ok("127.0.0.1:9470"));
    assert_eq!(at("0.0.0.0:9470").as_deref(), Ok("0.0.0.0:9470"));
    assert_eq!(at("[::1]:9470").as_deref(), Ok("[::1]:9470"));
    assert_eq!(at("nonsense"), Err(Reason::InvalidArgument));
    assert!(MetricsPage::open("").unwrap().is_none());
    assert_eq!(MetricsPage::open("unix:/x").err().map(|fault| fault.reason), Some(Reason::InvalidArgument));
}

#[test]
fn the_text_has_the_help_and_the_kind_of_every_figure() {
    let page = MetricsPage::open("127.0.0.1:0").unwrap().unwrap();
    let mut values = Values::default();
    values.set("frieze_healthy", &[], 1.0);
    values.set("frieze_flushes_total", &[], 7.0);
    values.set("frieze_clock_error_seconds", &[], f64::INFINITY);
    values.set("frieze_chain_role", &["3", "head"], 1.0);
    values.set("frieze_node_info", &["00ff", "2", "a \"quoted\" name"], 1.0);
    page.durations.with_label_values(&["read"]).observe(0.002);
    let text = page.text(values).unwrap();
    for line in [
        "# HELP frieze_healthy 1 if `frieze status` says healthy, else 0: a copy, a server or a majority is missing, \
         or something is wrong here.\n# TYPE frieze_healthy gauge\nfrieze_healthy 1\n",
        "# TYPE frieze_flushes_total counter\nfrieze_flushes_total 7\n",
        "frieze_clock_error_seconds inf\n",
        "frieze_chain_role{chain=\"3\",role=\"head\"} 1\n",
        "frieze_node_info{cluster=\"00ff\",name=\"a \\\"quoted\\\" name\",node=\"2\"} 1\n",
        "# TYPE frieze_request_duration_seconds histogram\n",
        "frieze_request_duration_seconds_bucket{kind=\"read\",le=\"0.0025\"} 1\n",
        "frieze_request_duration_seconds_bucket{kind=\"read\",le=\"0.001\"} 0\n",
        "frieze_request_duration_seconds_count{kind=\"read\"} 1\n",
    ] {
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
    // A value that this server has not received is left out: a 0 would be wrong.
    assert!(!text.contains("frieze_metalog_term"), "{text}");
}
