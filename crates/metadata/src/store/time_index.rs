//! The index of time in the store: pages of (stamp, key) in the order of their stamps.
//!
//! Changes gather in memory, in order of stamp, until 256 of them become a page, keyed `T` and the stamp of the first;
//! what has gathered when a memtable is sealed becomes a page, too. Values of a page: for each change the stamp as a
//! difference to the one before (the first: to the key) and the length of the key, both as variable-length integers,
//! then the key.

use frieze_base::varint::{put, take, take_bytes};
use frieze_base::{Fault, Reason};
use frieze_hlc::Hlc;

use super::version_store::StoreItem;

/// First byte of the keys of pages.
pub(super) const TIMES: u8 = b'T';
/// Changes in a page: more cost a look at a short interval, fewer cost items.
pub(super) const PAGE_CHANGES: usize = 256;

/// The key of the page whose first change is stamped `stamp`.
pub(super) fn page_key(stamp: Hlc) -> Vec<u8> {
    [&[TIMES][..], &stamp.0.to_be_bytes()].concat()
}

/// The pages of changes, as stamps and keys, that come in order of stamp.
pub(super) fn pages_of<K: AsRef<[u8]>>(timed: &[(Hlc, K)]) -> Vec<StoreItem> {
    let mut items: Vec<StoreItem> = Vec::new();
    let mut rest = timed;
    while let Some((first, _)) = rest.first() {
        let mut count = rest.len().min(PAGE_CHANGES);
        // A transaction is in one page, so that no two pages begin with one stamp.
        while count < rest.len() && rest[count].0 == rest[count - 1].0 {
            count += 1;
        }
        let mut value = Vec::with_capacity(count * 32);
        let mut last = *first;
        for (stamp, key) in &rest[..count] {
            let key = key.as_ref();
            put(&mut value, stamp.0 - last.0);
            put(&mut value, key.len() as u64);
            value.extend_from_slice(key);
            last = *stamp;
        }
        items.push((page_key(*first), value));
        rest = &rest[count..];
    }
    items
}

/// Stamp of the last change of a page.
///
/// # Errors
/// `Corrupt`: the page is malformed.
pub(super) fn last_stamp(item: &StoreItem) -> Result<Hlc, Fault> {
    let mut last = Hlc::ZERO;
    read(item, &mut |stamp, _| {
        last = stamp;
        true
    })?;
    Ok(last)
}

/// Shows every change of a page to `visit` until it answers false. Returns false if it did, and the changes read.
pub(super) fn read(item: &StoreItem, visit: &mut dyn FnMut(Hlc, &[u8]) -> bool) -> Result<(bool, u64), Fault> {
    let corrupt = || Fault::new(Reason::Corrupt, "the namespace's store holds a malformed page of the index of time");
    let first = item.0.get(1..).and_then(|stamp| stamp.try_into().ok()).ok_or_else(corrupt)?;
    let mut stamp = u64::from_be_bytes(first);
    let mut rest = item.1.as_slice();
    let mut read = 0;
    while !rest.is_empty() {
        let since = take(&mut rest).ok_or_else(corrupt)?;
        let len = take(&mut rest).and_then(|len| usize::try_from(len).ok()).ok_or_else(corrupt)?;
        let key = take_bytes(&mut rest, len).ok_or_else(corrupt)?;
        stamp = stamp.checked_add(since).ok_or_else(corrupt)?;
        read += 1;
        if !visit(Hlc(stamp), key) {
            return Ok((false, read));
        }
    }
    Ok((true, read))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(items: &[StoreItem]) -> Vec<(Hlc, Vec<u8>)> {
        let mut found = Vec::new();
        for item in items {
            read(item, &mut |stamp, key| {
                found.push((stamp, key.to_vec()));
                true
            })
            .expect("reads");
        }
        found
    }

    #[test]
    fn pages_give_back_what_went_in_and_cut_no_transaction() {
        let keys: Vec<(Hlc, Vec<u8>)> =
            (0..2000u64).map(|n| (Hlc(1000 + n / 3 * 7), format!("E{n}").into_bytes())).collect();
        let timed: Vec<(Hlc, &[u8])> = keys.iter().map(|(stamp, key)| (*stamp, key.as_slice())).collect();
        let items = pages_of(&timed);
        assert!(items.len() >= 2000 / (PAGE_CHANGES + 3), "{} pages", items.len());
        assert!(items.windows(2).all(|pair| pair[0].0 < pair[1].0), "each page has a key of its own");
        assert_eq!(all(&items), keys);
        assert_eq!(pages_of::<&[u8]>(&[]), []);
    }

    #[test]
    fn golden_bytes_of_a_page() {
        let items = pages_of(&[(Hlc(0x0102), &b"Ia"[..]), (Hlc(0x0302), b"X")]);
        assert_eq!(items, [(b"T\0\0\0\0\0\0\x01\x02".to_vec(), b"\0\x02Ia\x80\x04\x01X".to_vec())]);
    }

    #[test]
    fn damage_is_told() {
        let good = pages_of(&[(Hlc(5), b"Ia")]).remove(0);
        for bad in [
            (b"T123".to_vec(), good.1.clone()),
            (good.0.clone(), b"\0\x09Ia".to_vec()),
            (good.0.clone(), b"\x80".to_vec()),
            (good.0.clone(), vec![0xff; 30]),
        ] {
            let found = read(&bad, &mut |_, _| true);
            assert_eq!(found.map_err(|fault| fault.reason), Err(Reason::Corrupt), "{bad:?}");
        }
    }

    #[test]
    fn any_bytes_are_a_page_or_corrupt() {
        let seed = pages_of(&[(Hlc(0x0102), &b"Ia"[..]), (Hlc(0x0302), b"X"), (Hlc(0x0302), b"")]).remove(0).1;
        frieze_harness::fuzz!([seed], |bytes: &[u8]| {
            let item = (page_key(Hlc(0x0102)), bytes.to_vec());
            let mut found = Vec::new();
            let read = read(&item, &mut |stamp, key| {
                found.push((stamp, key.to_vec()));
                true
            });
            match read {
                Ok((whole, count)) => assert!(whole && count == found.len() as u64),
                Err(fault) => assert_eq!(fault.reason, Reason::Corrupt),
            }
            assert!(found.windows(2).all(|pair| pair[0].0 <= pair[1].0), "stamps rise");
        });
    }
}
