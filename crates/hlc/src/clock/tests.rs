use super::*;

/// A machine whose clocks a test moves by hand.
struct TestMachine {
    reading: ClockReading,
}

const START_US: u64 = 1_795_255_200_000_000;
const SECOND_US: u64 = 1_000_000;

impl TestMachine {
    fn new() -> TestMachine {
        TestMachine { reading: ClockReading { wall_us: START_US, mono: MonoTime(1_000_000_000), error_us: Some(100) } }
    }

    fn advance(&mut self, micros: u64) -> ClockReading {
        self.reading.wall_us += micros;
        self.reading.mono.0 += micros * 1000;
        self.reading
    }

    fn jump(&mut self, micros: i64) -> ClockReading {
        self.reading.wall_us = self.reading.wall_us.saturating_add_signed(micros);
        self.advance(1)
    }
}

fn settings() -> ClockSettings {
    ClockSettings { boot_grace_us: 0, ..ClockSettings::default() }
}

/// A clock that has its bound and has given one stamp.
fn running(machine: &mut TestMachine) -> HlcClock {
    let mut clock = HlcClock::new(settings(), Hlc::ZERO);
    tick(&mut clock, machine.advance(1));
    clock
}

/// Ticks as a driver does: the bound is persisted where it is asked for.
fn tick(clock: &mut HlcClock, reading: ClockReading) -> Hlc {
    try_tick(clock, reading).expect("the clock is trusted")
}

fn try_tick(clock: &mut HlcClock, reading: ClockReading) -> Result<Hlc, Error> {
    match clock.tick(reading) {
        Err(Error::BoundNeeded(bound)) => {
            clock.bound_persisted(bound);
            clock.tick(reading)
        }
        done => done,
    }
}

fn fence(result: Result<Hlc, Error>) -> Fence {
    match result {
        Err(Error::Fenced(fence)) => fence,
        other => panic!("not fenced: {other:?}"),
    }
}

#[test]
fn stamps_follow_the_wall_clock_and_rise_by_the_counter_within_a_microsecond() {
    let mut machine = TestMachine::new();
    let mut clock = HlcClock::new(settings(), Hlc::ZERO);
    let reading = machine.advance(10);
    let first = tick(&mut clock, reading);
    assert_eq!(first, Hlc::first_of_micros(reading.wall_us));
    assert_eq!(tick(&mut clock, reading), first.next());
    let later = machine.advance(3);
    assert_eq!(tick(&mut clock, later), Hlc::first_of_micros(later.wall_us));
}

#[test]
fn a_full_counter_carries_into_the_microseconds() {
    let mut machine = TestMachine::new();
    let mut clock = running(&mut machine);
    let reading = machine.advance(1);
    let first = clock.tick_many(reading, 4096).unwrap();
    assert_eq!(clock.newest(), Hlc::last_of_micros(first.micros()));
    assert_eq!(tick(&mut clock, reading), Hlc::first_of_micros(first.micros() + 1));
}

#[test]
fn a_batch_takes_consecutive_stamps() {
    let mut machine = TestMachine::new();
    let mut clock = running(&mut machine);
    let reading = machine.advance(1);
    let first = clock.tick_many(reading, 10).unwrap();
    assert_eq!(clock.newest(), Hlc(first.0 + 9));
    assert_eq!(clock.tick(reading), Ok(Hlc(first.0 + 10)));
}

#[test]
fn reading_the_time_ticks_nothing() {
    let mut machine = TestMachine::new();
    let clock = running(&mut machine);
    let reading = machine.advance(5);
    let newest = clock.newest();
    assert_eq!(clock.now(reading), Hlc::last_of_micros(reading.wall_us));
    assert_eq!(clock.newest(), newest);
}

#[test]
fn no_stamp_is_given_above_the_bound_until_it_is_persisted() {
    let mut machine = TestMachine::new();
    let mut clock = HlcClock::new(settings(), Hlc::ZERO);
    let reading = machine.advance(1);
    let Err(Error::BoundNeeded(bound)) = clock.tick(reading) else { panic!("a new clock has no bound") };
    assert_eq!(bound.micros(), reading.wall_us + 1_000_000);
    assert!(matches!(clock.tick(reading), Err(Error::BoundNeeded(_))), "asking again gives no stamp either");
    clock.bound_persisted(bound);
    assert!(clock.tick(reading).unwrap() <= bound);
    let reading = machine.advance(2 * SECOND_US);
    assert!(matches!(clock.tick(reading), Err(Error::BoundNeeded(next)) if next > bound));
    assert!(matches!(clock.close(reading, clock.now(reading)), Err(Error::BoundNeeded(_))), "promises are bounded too");
}

#[test]
fn the_bound_is_extended_in_the_background_while_stamps_are_given_and_not_when_idle() {
    let mut machine = TestMachine::new();
    let mut clock = running(&mut machine);
    assert_eq!(clock.wants_bound(machine.reading), None);
    let reading = machine.advance(600_000);
    assert_eq!(clock.wants_bound(reading), None, "nothing was stamped since");
    clock.tick(reading).unwrap();
    let bound = clock.wants_bound(reading).expect("more than half of the lead is used");
    assert_eq!(bound.micros(), reading.wall_us + 1_000_000);
    clock.bound_persisted(bound);
    assert_eq!(clock.wants_bound(reading), None);
    for _ in 0..100 {
        // A writer that stamps all the time never waits for the bound.
        let reading = machine.advance(50_000);
        clock.tick(reading).unwrap();
        if let Some(bound) = clock.wants_bound(reading) {
            clock.bound_persisted(bound);
        }
    }
}

#[test]
fn a_restarted_clock_stamps_above_everything_it_gave_before_even_if_the_wall_clock_was_set_back() {
    let mut machine = TestMachine::new();
    let mut clock = running(&mut machine);
    let last = tick(&mut clock, machine.advance(1));
    let bound = clock.bound();
    machine.jump(-300_000);
    let mut restarted = HlcClock::new(settings(), bound);
    assert!(restarted.closed() >= last);
    let wait_us = restarted.restart_wait_us(machine.reading);
    assert!((1_200_000..1_400_000).contains(&wait_us), "{wait_us}");
    assert!(matches!(fence(restarted.tick(machine.reading)), Fence::Behind { .. }));
    let reading = machine.advance(wait_us);
    assert_eq!(restarted.restart_wait_us(reading), 0);
    assert!(tick(&mut restarted, reading) > bound);
    assert_eq!(
        HlcClock::new(settings(), Hlc::ZERO).restart_wait_us(reading),
        0,
        "a new server has nothing to wait out"
    );
}

#[test]
fn a_remote_stamp_within_the_offset_is_adopted_and_one_beyond_it_never() {
    let mut machine = TestMachine::new();
    let mut clock = running(&mut machine);
    let reading = machine.advance(1);
    let ahead = Hlc::first_of_micros(reading.wall_us + 400_000);
    clock.observe(reading, ahead).unwrap();
    assert!(tick(&mut clock, reading) > ahead);
    let newest = clock.newest();
    let far = Hlc::first_of_micros(reading.wall_us + 500_001);
    assert!(matches!(clock.observe(reading, far), Err(Error::RemoteAhead { ahead_us: 500_001, .. })));
    assert!(matches!(clock.observe(reading, Hlc::MAX), Err(Error::RemoteAhead { .. })));
    assert_eq!(clock.newest(), newest);
}

#[test]
fn remote_stamps_cannot_drag_the_clock_away_step_by_step() {
    let mut machine = TestMachine::new();
    let mut clock = running(&mut machine);
    let reading = machine.advance(1);
    for _ in 0..100 {
        let remote = Hlc::first_of_micros(clock.newest().micros() + 400_000);
        let _ = clock.observe(reading, remote);
    }
    assert!(clock.newest().micros() <= reading.wall_us + 500_000);
}

#[test]
fn closing_an_instant_moves_the_clock_past_it() {
    let mut machine = TestMachine::new();
    let mut clock = running(&mut machine);
    let reading = machine.advance(1);
    let now = clock.now(reading);
    clock.close(reading, now).unwrap();
    assert_eq!(clock.closed(), now);
    assert!(tick(&mut clock, reading) > now, "in the same microsecond");
    clock.close(reading, Hlc(5)).unwrap();
    assert_eq!(clock.closed(), now, "closing the past again changes nothing");
}

#[test]
fn an_instant_in_the_future_beyond_the_error_bound_is_not_closed() {
    let mut machine = TestMachine::new();
    let mut clock = running(&mut machine);
    let reading = machine.advance(1);
    let limit = reading.wall_us + 100 + 1_000; // error bound and allowance
    let newest = clock.newest();
    assert!(matches!(
        clock.close(reading, Hlc::first_of_micros(limit + 1)),
        Err(Error::Future { newest, .. }) if newest == Hlc::last_of_micros(limit)
    ));
    assert!(clock.close(reading, Hlc::MAX).is_err());
    assert_eq!(clock.newest(), newest, "a refused instant moves nothing");
    clock.close(reading, Hlc::last_of_micros(limit)).unwrap();
}

#[test]
fn a_wall_clock_set_back_a_little_goes_unnoticed_because_stamps_rise_by_the_counter() {
    let mut machine = TestMachine::new();
    let mut clock = running(&mut machine);
    let mut last = clock.newest();
    for _ in 0..20 {
        let stamp = tick(&mut clock, machine.jump(-10_000));
        assert!(stamp > last);
        last = stamp;
    }
}

#[test]
fn a_wall_clock_set_far_back_fences_until_it_has_caught_up() {
    let mut machine = TestMachine::new();
    let mut clock = running(&mut machine);
    let newest = clock.newest();
    assert!(
        matches!(fence(try_tick(&mut clock, machine.jump(-60 * 1_000_000))), Fence::Jumped { by_us, .. } if by_us < 0)
    );
    let mut waited_us = 0;
    let stamp = loop {
        let reading = machine.advance(SECOND_US);
        waited_us += SECOND_US;
        match try_tick(&mut clock, reading) {
            Ok(stamp) => break stamp,
            Err(Error::Fenced(Fence::Jumped { .. })) => assert!(waited_us <= 5 * SECOND_US),
            Err(Error::Fenced(Fence::Behind { .. })) => {}
            Err(other) => panic!("{other}"),
        }
    };
    assert!(stamp > newest);
    assert!((59 * SECOND_US..=60 * SECOND_US).contains(&waited_us), "{waited_us}");
    assert_eq!(clock.health(machine.reading).fenced, None);
}

#[test]
fn a_wall_clock_set_forward_is_believed_only_after_it_has_run_evenly_for_a_while() {
    let mut machine = TestMachine::new();
    let mut clock = running(&mut machine);
    let before = machine.reading;
    let reading = machine.jump(3_600 * 1_000_000);
    assert!(matches!(fence(try_tick(&mut clock, reading)), Fence::Jumped { by_us: 3_600_000_000, .. }));
    assert_eq!(clock.now(reading).micros(), before.wall_us + 1, "time goes on by the monotonic clock");
    assert!(clock.close(reading, Hlc::first_of_micros(reading.wall_us)).is_err(), "nothing adopts the new time yet");
    for _ in 0..4 {
        assert!(matches!(fence(try_tick(&mut clock, machine.advance(SECOND_US))), Fence::Jumped { .. }));
    }
    let reading = machine.advance(2 * SECOND_US);
    assert_eq!(tick(&mut clock, reading), Hlc::first_of_micros(reading.wall_us));
}

#[test]
fn a_wrong_jump_that_is_taken_back_costs_nothing() {
    let mut machine = TestMachine::new();
    let mut clock = running(&mut machine);
    fence(try_tick(&mut clock, machine.jump(3_600 * 1_000_000)));
    let reading = machine.jump(-3_600 * 1_000_000);
    assert_eq!(tick(&mut clock, reading), Hlc::first_of_micros(reading.wall_us));
}

#[test]
fn a_clock_that_keeps_jumping_stays_fenced() {
    let mut machine = TestMachine::new();
    let mut clock = running(&mut machine);
    for _ in 0..20 {
        fence(try_tick(&mut clock, machine.jump(2_000_000)));
        machine.advance(SECOND_US);
    }
}

#[test]
fn the_present_is_not_taken_from_a_jumped_clock_before_its_first_check() {
    let mut machine = TestMachine::new();
    let clock = running(&mut machine);
    let reading = machine.jump(3_600 * 1_000_000);
    assert!(clock.now(reading).micros() < START_US + SECOND_US);
}

#[test]
fn reads_are_served_while_the_clock_is_fenced() {
    let mut machine = TestMachine::new();
    let mut clock = running(&mut machine);
    let stamp = clock.newest();
    let reading = machine.jump(3_600 * 1_000_000);
    fence(try_tick(&mut clock, reading));
    clock.close(reading, stamp).unwrap();
    clock.close(reading, clock.now(reading)).unwrap();
}

#[test]
fn a_long_idle_time_with_slewing_is_no_jump() {
    let mut machine = TestMachine::new();
    let mut clock = running(&mut machine);
    machine.advance(24 * 3_600 * SECOND_US);
    tick(&mut clock, machine.jump(20 * 1_000_000)); // 230 ppm over a day
}

#[test]
fn a_look_taken_before_another_thread_s_is_harmless() {
    let mut machine = TestMachine::new();
    let mut clock = running(&mut machine);
    let early = machine.advance(10);
    let late = machine.advance(900_000);
    let stamp = tick(&mut clock, late);
    assert!(tick(&mut clock, early) > stamp);
    assert_eq!(clock.health(late).fenced, None);
}

#[test]
fn a_large_error_bound_fences_and_a_small_one_recovers() {
    let mut machine = TestMachine::new();
    let mut clock = running(&mut machine);
    machine.reading.error_us = Some(600_000);
    assert_eq!(
        fence(try_tick(&mut clock, machine.advance(1))),
        Fence::ErrorTooLarge { error_us: 600_000, max_us: 500_000 }
    );
    machine.reading.error_us = Some(400_000);
    tick(&mut clock, machine.advance(1));
}

#[test]
fn an_unknown_error_bound_fences_only_where_clocks_have_to_agree() {
    let mut machine = TestMachine::new();
    machine.reading.error_us = None;
    let mut alone = running(&mut machine);
    tick(&mut alone, machine.advance(1));
    let mut one_of_many = HlcClock::new(ClockSettings { unknown_error: UnknownError::Fence, ..settings() }, Hlc::ZERO);
    assert_eq!(fence(try_tick(&mut one_of_many, machine.advance(1))), Fence::ErrorUnknown);
}

#[test]
fn while_the_machine_boots_its_clock_may_be_set_and_be_inexact() {
    let mut machine = TestMachine::new();
    machine.reading.error_us = Some(16_000_000);
    let mut clock = HlcClock::new(ClockSettings::default(), Hlc::ZERO);
    tick(&mut clock, machine.advance(1));
    tick(&mut clock, machine.jump(3_600 * 1_000_000));
    assert!(matches!(fence(try_tick(&mut clock, machine.advance(31 * SECOND_US))), Fence::ErrorTooLarge { .. }));
}

#[test]
fn health_says_why_in_words() {
    let mut machine = TestMachine::new();
    let mut clock = running(&mut machine);
    clock.look(machine.jump(-60 * 1_000_000));
    let why = clock.health(machine.reading).fenced.unwrap().to_string();
    assert_eq!(why, "the wall clock jumped by -60 s; it is believed if it runs evenly for another 5000 ms");
    machine.advance(3 * SECOND_US);
    clock.look(machine.reading);
    machine.advance(3 * SECOND_US);
    clock.look(machine.reading);
    let why = clock.health(machine.reading).fenced.unwrap().to_string();
    assert_eq!(
        why,
        "the wall clock is 53 s behind the stamps already given (at most 500 ms are accepted); it recovers when the \
         clock has caught up"
    );
}

#[test]
fn stamps_rise_and_stay_within_the_bound_whatever_the_clocks_do() {
    for seed in 0..200 {
        let mut rng = frieze_base::Rng::new(seed);
        let mut machine = TestMachine::new();
        let mut clock = HlcClock::new(settings(), Hlc::ZERO);
        let mut durable = Hlc::ZERO;
        let mut last = Hlc::ZERO;
        let mut stamps = 0;
        for _ in 0..500 {
            let reading = match rng.below(12) {
                0 => machine.jump(rng.below(4_000_000) as i64 - 2_000_000),
                1 => machine.advance(rng.below(10 * SECOND_US)),
                _ => machine.advance(rng.below(1_000)),
            };
            match rng.below(10) {
                0 => clock = HlcClock::new(settings(), durable),
                1 => drop(clock.observe(reading, Hlc::first_of_micros(reading.wall_us + rng.below(SECOND_US)))),
                2 => {
                    let at = Hlc(clock.now(reading).0 - rng.below(1 << 24));
                    if clock.close(reading, at).is_ok() {
                        last = last.max(at);
                    }
                }
                _ => {}
            }
            match clock.tick(reading) {
                Ok(stamp) => {
                    assert!(stamp > last && stamp <= durable, "seed {seed}: {stamp} after {last}, bound {durable}");
                    last = stamp;
                    stamps += 1;
                }
                Err(Error::BoundNeeded(bound)) => {
                    durable = bound;
                    clock.bound_persisted(bound);
                }
                Err(Error::Fenced(_)) => {}
                Err(other) => panic!("seed {seed}: {other}"),
            }
        }
        assert!(stamps > 20, "seed {seed}: only {stamps} stamps, so little was tried");
    }
}
