use super::*;

fn change(stamp: u64, session: u64, uid: u32) -> EntryStamp {
    EntryStamp { stamp: Hlc(stamp), session: SessionId(session), uid }
}

fn page_of(changes: &[EntryStamp]) -> EntryStampPage {
    let mut page = EntryStampPage::new(changes[0]);
    changes[1..].iter().for_each(|change| page.push(*change));
    page
}

fn read(first: Hlc, page: &[u8]) -> Result<Vec<EntryStamp>, Fault> {
    let mut found = Vec::new();
    visit_entry_stamps(InodeId(7), first, page, &mut |change| {
        found.push(change);
        true
    })?;
    Ok(found)
}

#[test]
fn a_page_gives_back_what_went_in() {
    let mut changes = Vec::new();
    for number in 0..ENTRY_STAMPS_MAX as u64 {
        changes.push(change((1 << 60) + number * number * 1000 + number, (1 << 50) + number % 33, (number % 3) as u32));
        let page = page_of(&changes);
        assert_eq!(read(page.first(), page.bytes()), Ok(changes.clone()));
        assert_eq!(page.is_full(), changes.len() == ENTRY_STAMPS_MAX);
    }
    let page = page_of(&changes);
    for at in [0, 1, 100, 255] {
        let (stamp, found) = (changes[at].stamp, |at| newest_entry_stamp(InodeId(7), page.first(), page.bytes(), at));
        assert_eq!(found(stamp), Ok(Some(changes[at])));
        assert_eq!(found(stamp.previous()), Ok(at.checked_sub(1).map(|before| changes[before])));
    }
}

#[test]
fn a_change_by_a_known_author_takes_few_bytes() {
    // Two sessions in turn, 30 us apart.
    let changes: Vec<_> =
        (0..256).map(|number| change((1 << 60) + (number << 17), (1 << 60) + number % 2, 1000)).collect();
    let bytes = page_of(&changes).bytes().len();
    assert!(bytes < 256 * 4 + 2 * 12, "{bytes} bytes");
}

#[test]
fn golden_bytes_of_a_page() {
    let page = page_of(&[change(5, 300, 7), change(205, 300, 7), change(206, 1, 0), change(207, 300, 7)]);
    assert_eq!(page.bytes(), [0, 0, 0xac, 2, 7, 0xc8, 1, 0, 1, 1, 1, 0, 1, 0]);
    assert_eq!(page.first(), Hlc(5));
}

#[test]
#[should_panic(expected = "entries changed at")]
fn stamps_of_a_page_rise() {
    page_of(&[change(5, 1, 0), change(5, 1, 0)]);
}

#[test]
fn damage_is_reported_with_the_directory_and_the_stamp() {
    let good = page_of(&[change(5, 300, 7), change(9, 1, 0)]);
    let end = good.bytes().len();
    // Nothing; the first change not at the page's stamp; two at one stamp; an author that is not there; a cut.
    for bad in
        [&[][..], &[1, 0, 1, 1], &[0, 0, 1, 1, 0, 0], &[0, 1, 1, 1], &good.bytes()[..end - 1], &[0x80], &[0xff; 30]]
    {
        let fault = read(Hlc(5), bad).expect_err("it is damaged");
        assert_eq!(fault.reason, Reason::Corrupt);
        let says = format!("directory {} from {}", InodeId(7), Hlc(5));
        assert!(fault.message.contains(&says), "{fault}");
    }
    assert!(read(Hlc(u64::MAX), good.bytes()).is_err(), "a stamp too large");
}

#[test]
fn any_bytes_are_a_page_or_corrupt() {
    let seed = page_of(&[change(5, 300, 7), change(205, 300, 7), change(206, 1, 0)]).bytes().to_vec();
    frieze_harness::fuzz!([seed], |bytes: &[u8]| {
        match read(Hlc(5), bytes) {
            Ok(found) => assert!(found.windows(2).all(|pair| pair[0].stamp < pair[1].stamp), "stamps rise"),
            Err(fault) => assert_eq!(fault.reason, Reason::Corrupt),
        }
    });
}
