//! Items that a store adds and removes at once, in one buffer that is used again and again.

/// Puts and removals of stored keys, in the order in which they were noted: of several for one key the last counts.
#[derive(Clone, Debug, Default)]
pub struct StoreBatch {
    bytes: Vec<u8>,
    items: Vec<BatchItem>,
}

#[derive(Clone, Copy, Debug)]
struct BatchItem {
    key_end: usize,
    end: usize,
    is_put: bool,
}

impl StoreBatch {
    /// Notes a put: `write_key` and `write_value` append the stored key and the stored value to the buffer.
    pub(super) fn put_with(&mut self, write_key: impl FnOnce(&mut Vec<u8>), write_value: impl FnOnce(&mut Vec<u8>)) {
        write_key(&mut self.bytes);
        let key_end = self.bytes.len();
        write_value(&mut self.bytes);
        self.items.push(BatchItem { key_end, end: self.bytes.len(), is_put: true });
    }

    /// Notes a removal: `write_key` appends the stored key to the buffer.
    pub(super) fn remove_with(&mut self, write_key: impl FnOnce(&mut Vec<u8>)) {
        write_key(&mut self.bytes);
        self.items.push(BatchItem { key_end: self.bytes.len(), end: self.bytes.len(), is_put: false });
    }

    /// Notes a put.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.put_with(|bytes| bytes.extend_from_slice(key), |bytes| bytes.extend_from_slice(value));
    }

    /// Notes a removal.
    pub fn remove(&mut self, key: &[u8]) {
        self.remove_with(|bytes| bytes.extend_from_slice(key));
    }

    /// Stored keys and values; `None`: the key is removed.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut begin = 0;
        self.items.iter().map(move |item| {
            let key = &self.bytes[begin..item.key_end];
            let value = item.is_put.then(|| &self.bytes[item.key_end..item.end]);
            begin = item.end;
            (key, value)
        })
    }

    /// True if there is no item.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Empties the batch; its memory stays, up to [`BATCH_BYTES_KEPT`].
    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.bytes.clear();
        self.bytes.shrink_to(BATCH_BYTES_KEPT);
        self.items.shrink_to(BATCH_BYTES_KEPT / 64);
    }
}

/// A batch of one large entry does not keep its memory for ever.
const BATCH_BYTES_KEPT: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_shows_its_items_in_their_order_and_is_used_again() {
        let mut batch = StoreBatch::default();
        for _ in 0..2 {
            batch.clear();
            assert!(batch.is_empty() && batch.iter().next().is_none());
            batch.put(b"a", b"1");
            batch.remove(b"bc");
            batch.put(b"", b"");
            batch.put(b"a", b"");
            let items: Vec<_> = batch.iter().collect();
            assert_eq!(items, [(&b"a"[..], Some(&b"1"[..])), (b"bc", None), (b"", Some(b"")), (b"a", Some(b""))]);
        }
    }
}
