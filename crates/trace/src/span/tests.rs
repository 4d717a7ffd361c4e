use super::*;

fn all(queue: &SpanQueue) -> Vec<Span> {
    std::iter::from_fn(|| queue.next(Duration::ZERO).ok()).collect()
}

#[test]
fn spans_within_a_span_are_its_children() {
    let (tracer, queue) = Tracer::new(1.0, None);
    let outer = tracer.begin(SpanKind::Client, "write").unwrap();
    {
        let _within = outer.enter();
        let inner = child(SpanKind::Internal, "append").unwrap().with_number("bytes", 7).with_text("file", "a");
        let _deeper = inner.enter();
        assert_eq!(tracer.begin(SpanKind::Internal, "flush").unwrap().span.parent, inner.context().span);
    }
    assert!(child(SpanKind::Internal, "none").is_none(), "the guard was dropped");
    outer.end(9);
    outer.end(0);
    let context = outer.context();
    drop(outer);
    let spans = all(&queue);
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["flush", "append", "write"], "each ends before what it is within");
    assert!(spans.iter().all(|span| span.context.trace == context.trace && span.end_ns >= span.start_ns));
    assert_eq!((spans[1].parent, spans[2].parent, spans[2].failed), (context.span, 0, 9));
    assert_eq!(spans[1].values, [("bytes", SpanValue::Number(7)), ("file", SpanValue::Text("a".to_owned()))]);
}

#[test]
fn the_share_decides_about_requests_without_a_parent_only() {
    let (none, queue) = Tracer::new(0.0, None);
    assert!((0..1000).all(|_| none.begin(SpanKind::Client, "read").is_none()));
    let parent = SpanContext { trace: 5, span: 6 };
    let child = none.child_of(parent, SpanKind::Server, "read");
    assert_eq!((child.context().trace, child.span.parent), (5, 6));
    drop(child);
    assert_eq!(all(&queue).len(), 1);
    let (hundredth, _queue) = Tracer::new(0.01, None);
    let sampled = (0..100_000).filter(|_| hundredth.begin(SpanKind::Client, "read").is_some()).count();
    assert!((800..1200).contains(&sampled), "{sampled} of 100,000");
    let (of_command, queue) = Tracer::new(0.0, Some(parent));
    drop(of_command.begin(SpanKind::Client, "read").unwrap());
    assert_eq!(all(&queue)[0].parent, 6);
}

#[test]
fn a_full_queue_drops_spans_and_counts_them() {
    let (tracer, queue) = Tracer::new(1.0, None);
    (0..QUEUE_SPANS_MAX + 5).for_each(|_| drop(tracer.begin(SpanKind::Client, "read")));
    assert_eq!((tracer.sent(), tracer.dropped()), (0, 5));
    assert_eq!(all(&queue).len(), QUEUE_SPANS_MAX);
    queue.count_sent(3);
    assert_eq!(tracer.sent(), 3);
    drop(queue);
    drop(tracer.begin(SpanKind::Client, "read"));
    assert_eq!(tracer.dropped(), 6, "nothing sends them");
}

#[test]
fn a_traceparent_round_trips_and_a_wrong_one_is_none() {
    let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let context: SpanContext = text.parse().unwrap();
    assert_eq!(context.trace, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
    assert_eq!(context.to_string(), text);
    // A later version may have more fields, and more flags.
    assert_eq!("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03-more".parse(), Ok(context));
    for wrong in [
        "",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ] {
        assert_eq!(wrong.parse::<SpanContext>(), Err(NotSampled), "{wrong}");
    }
}

#[test]
fn a_command_is_one_trace_or_none() {
    let parent = SpanContext { trace: 5, span: 6 };
    let (tracer, queue, command) = Tracer::of_command(0.0, Some(parent), "frieze put");
    let command = command.expect("its parent is sampled");
    drop(tracer.begin(SpanKind::Client, "write").unwrap());
    let within = all(&queue).remove(0);
    assert_eq!((within.context.trace, within.parent), (5, command.context().span));
    drop(command);
    assert_eq!(all(&queue)[0].parent, 6);
    let (tracer, _queue, command) = Tracer::of_command(0.0, None, "frieze put");
    assert!(command.is_none() && tracer.begin(SpanKind::Client, "write").is_none());
    let (tracer, _queue, command) = Tracer::of_command(1.0, None, "frieze put");
    let span = tracer.begin(SpanKind::Client, "write").unwrap();
    assert_eq!(span.context().trace, command.unwrap().context().trace);
}

#[test]
fn spans_of_the_newest_requests_are_remembered() {
    let spans = SpansOfRequests::default();
    let context = |span| SpanContext { trace: 1, span };
    (1..=REQUESTS_MAX as u64 + 1).for_each(|seq| spans.put((9, seq), context(seq)));
    assert_eq!(spans.get((9, 1)), None);
    assert_eq!(spans.get((9, 2)), Some(context(2)));
    assert_eq!(spans.get((8, 2)), None);
    spans.put((9, 2), context(77));
    assert_eq!(spans.get((9, 2)), Some(context(77)), "the newest counts");
}
