"""PyTorch's loader with workers that fork: `make test-pytorch`, for the package is large."""

import pytest

torch = pytest.importorskip("torch")

from frieze.fsspec import FriezeFileSystem  # noqa: E402


class Records(torch.utils.data.Dataset):
    """One file a record, read through a file system that the parent has used."""

    def __init__(self, files, paths):
        self.files, self.paths = files, paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.frombuffer(bytearray(self.files.cat_file(self.paths[index])), dtype=torch.uint8)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_loader_reads_one_instant_with_forked_workers(served, fs, place, start):
    files = FriezeFileSystem(served.address)
    paths = [f"{place}/{index:03}" for index in range(100)]
    files.pipe({path: bytes([index]) * 8 for index, path in enumerate(paths)})
    then = files.at(fs.now())
    assert then.cat_file(paths[0]) == bytes(8)
    files.pipe({path: bytes(8) for path in paths})
    loader = torch.utils.data.DataLoader(
        Records(then, paths), batch_size=10, num_workers=2, multiprocessing_context=start
    )
    for _ in range(2):
        assert torch.cat(list(loader))[:, 0].tolist() == list(range(100))
