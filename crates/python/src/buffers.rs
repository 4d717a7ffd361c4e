//! Python's buffers as slices: the one place of this crate with unsafe code.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A writable buffer of Python, exported for as long as this lives: Python neither moves nor frees it meanwhile.
pub(crate) struct WritableBuffer(PyBuffer<u8>);

impl WritableBuffer {
    /// The bytes of an object.
    ///
    /// # Errors
    /// `TypeError` for an object without a buffer, or one that is read-only; `BufferError` for one with gaps.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<WritableBuffer> {
        let buffer = bytes_of(object)?;
        match buffer.readonly() {
            true => Err(PyTypeError::new_err("the buffer is read-only")),
            false => Ok(WritableBuffer(buffer)),
        }
    }

    /// The bytes, to be written.
    #[expect(unsafe_code, reason = "bytes are received into memory of Python, not copied into it")]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        let Some(mut bytes) = self.0.as_slice_ptr() else { return &mut [] };
        // SAFETY: the export keeps the memory in place while `self` lives. It is contiguous and writable, which `of`
        // has checked. A program that uses the buffer from another thread during the call has a data race, as with
        // `readinto` of Python's own files, which releases the interpreter's lock in the same way.
        unsafe { bytes.as_mut() }
    }
}

/// A buffer of Python that is read.
pub(crate) struct ReadableBuffer(PyBuffer<u8>);

impl ReadableBuffer {
    /// The bytes of an object.
    ///
    /// # Errors
    /// `TypeError` for an object without a buffer; `BufferError` for one with gaps.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<ReadableBuffer> {
        Ok(ReadableBuffer(bytes_of(object)?))
    }

    /// The bytes.
    #[expect(unsafe_code, reason = "bytes are sent from memory of Python, not copied out of it")]
    pub(crate) fn as_slice(&self) -> &[u8] {
        let Some(bytes) = self.0.as_slice_ptr() else { return &[] };
        // SAFETY: as above; the memory is only read.
        unsafe { bytes.as_ref() }
    }
}

/// A `bytes` object of up to `len` bytes, which `fill` writes; it returns how many there are.
///
/// As `PyBytes::new_with`, but the memory is not zeroed before, which is one more pass over it.
#[expect(unsafe_code, reason = "memory of a new object is filled before any other code has the object")]
pub(crate) fn filled_bytes<'py>(
    py: Python<'py>,
    len: usize,
    fill: impl FnOnce(&mut [u8]) -> PyResult<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let size = ffi::Py_ssize_t::try_from(len).map_err(|_| PyBufferError::new_err("too many bytes for one object"))?;
    // SAFETY: without content Python allocates `len` bytes, or returns null with an exception.
    let bytes = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), size))? };
    // SAFETY: the object is new, so nothing else reads or writes it, and lives longer than the slice. `fill` only
    // writes to it, and tells how far it has.
    let into = unsafe { std::slice::from_raw_parts_mut(ffi::PyBytes_AsString(bytes.as_ptr()).cast::<u8>(), len) };
    let count = fill(into)?;
    match count < len {
        true => Ok(PyBytes::new(py, &into[..count]).into_any()),
        false => Ok(bytes),
    }
}

fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    // Views of other types than bytes are cast: `array('d')`, arrays of numpy.
    let buffer = match PyBuffer::<u8>::get(object) {
        Ok(buffer) => buffer,
        Err(error) if error.is_instance_of::<PyBufferError>(object.py()) => {
            let view = object.py().import("builtins")?.getattr("memoryview")?.call1((object,))?;
            PyBuffer::<u8>::get(&view.call_method1("cast", ("B",))?)?
        }
        Err(error) => return Err(error),
    };
    match buffer.is_c_contiguous() {
        true => Ok(buffer),
        false => Err(PyBufferError::new_err("the buffer has gaps: give a contiguous one")),
    }
}
