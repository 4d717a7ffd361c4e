"""Programs of data people, through the wheel: each reads now and the past."""

import concurrent.futures

import dask
import dask.dataframe as dask_frames
import duckdb
import pandas
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet
import pytest
import upath
import zarr

from frieze.fsspec import FriezeFileSystem

TB = 10**12


@pytest.fixture
def url(served, place):
    return f"frieze://{served.address}{place}"


@pytest.fixture
def files(served):
    return FriezeFileSystem(served.address)


def test_pandas_reads_and_writes_tables_of_now_and_then(url, fs):
    table = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    table.to_csv(f"{url}/t.csv", index=False)
    table.to_parquet(f"{url}/t.parquet")
    then = fs.now()
    (table * 2).to_csv(f"{url}/t.csv", index=False)
    (table * 2).to_parquet(f"{url}/t.parquet")
    assert pandas.read_csv(f"{url}/t.csv").a.tolist() == [2, 4]
    assert pandas.read_csv(f"{url}/t.csv@{then}").equals(table)
    assert pandas.read_parquet(f"{url}/t.parquet").a.tolist() == [2, 4]
    assert pandas.read_parquet(f"{url}/t.parquet@{then}").equals(table)
    assert pandas.read_csv(f"{url}/t.csv", storage_options={"at": str(then)}).equals(table)


def test_pyarrow_reads_and_writes_datasets(files, fs, place):
    table = pyarrow.table({"part": [1, 1, 2], "value": [10, 20, 30]})
    pyarrow.dataset.write_dataset(table, f"{place}/d", filesystem=files, format="parquet", partitioning=["part"])
    then = fs.now()
    more = pyarrow.table({"part": [3], "value": [40]})
    pyarrow.dataset.write_dataset(
        more,
        f"{place}/d",
        filesystem=files,
        format="parquet",
        partitioning=["part"],
        existing_data_behavior="overwrite_or_ignore",
    )

    def total(files):
        read = pyarrow.dataset.dataset(f"{place}/d", filesystem=files, partitioning=["part"])
        return sum(read.to_table()["value"].to_pylist())

    assert (total(files), total(files.at(then))) == (100, 60)
    arrow = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(files))
    info = arrow.get_file_info(pyarrow.fs.FileSelector(f"{place}/d", recursive=True))
    assert sum(one.type == pyarrow.fs.FileType.File for one in info) == 3
    arrow.delete_dir(f"{place}/d")
    assert not files.exists(f"{place}/d")
    with pytest.raises(FileNotFoundError):
        arrow.open_input_file(f"{place}/absent")


def test_dask_reads_parts_in_processes_at_one_instant(url, fs):
    table = pandas.DataFrame({"a": range(1000)})
    dask_frames.from_pandas(table, npartitions=4).to_parquet(f"{url}/t")
    then = fs.now()
    dask_frames.from_pandas(table + 1, npartitions=4).to_parquet(f"{url}/t")
    with dask.config.set(scheduler="threads"):
        assert dask_frames.read_parquet(f"{url}/t").a.sum().compute() == 500_500
    options = {"at": str(then)}
    with dask.config.set(scheduler="processes", num_workers=2):
        assert dask_frames.read_parquet(f"{url}/t", storage_options=options).a.sum().compute() == 499_500
    one, two = (dask_frames.read_parquet(f"{url}/t", storage_options=options) for _ in range(2))
    assert dask.base.tokenize(one) == dask.base.tokenize(two)


def test_a_zarr_array_is_read_at_a_hundred_instants_in_parallel(url, files, place):
    array = zarr.create_array(f"{url}/z", shape=(64, 64), chunks=(32, 32), dtype="i4")
    instants = []
    for value in range(100):
        array[value % 64, :] = value
        instants.append(files.native.now())

    def read(number):
        store = zarr.storage.FsspecStore.from_url(f"{url}/z", storage_options={"at": str(instants[number])})
        return zarr.open_array(store, mode="r")[number % 64, 0]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, range(100))) == list(range(100))
    assert zarr.open_array(f"{url}/z", mode="r")[63 - 27, 0] in (36, 100 - 64 + 36)


def test_duckdb_reads_files_and_answers_which_program_grew_a_tree(files, fs, place, url):
    pyarrow.parquet.write_table(pyarrow.table({"a": [1, 2, 3]}), f"{place}/t.parquet", filesystem=files)
    with duckdb.connect() as database:
        database.register_filesystem(files)
        assert database.sql(f"select sum(a) from '{url}/t.parquet'").fetchall() == [(6,)]
    fs.makedirs(f"{place}/big")
    fs.write_bytes(f"{place}/big/old", bytes(100))
    first = fs.now()
    fs.write_bytes(f"{place}/big/old", bytes(30))
    with fs.open(f"{place}/big/old", "ab") as file:
        file.write(bytes(10))
    fs.write_bytes(f"{place}/big/small", b"12345")
    # Two terabytes, and none of them stored.
    for name in ["hole", "shrunk"]:
        with fs.open(f"{place}/big/{name}", "wb") as file:
            file.truncate(2 * TB)
    fs.truncate(f"{place}/big/shrunk", 3)
    second = fs.now()
    fs.write_bytes(f"{place}/big/later", bytes(1000))
    changes = fs.history(f"{place}/big", since=first, until=second).to_arrow()  # noqa: F841
    who = duckdb.sql(
        """
        select uid, command, sum(grown)::bigint as grown from changes group by all having sum(grown) > 1e12
        """
    ).fetchall()
    assert [grown for _, _, grown in who] == [2 * TB + 3 + 5 - 60]
    assert who[0][0] == fs.stat(place).st_uid and "pytest" in who[0][1]
    # A file that existed, and is written in place, grows by what it is longer.
    with fs.open(f"{place}/big/old", "r+b") as file:
        file.write(bytes(50))
    third = fs.now()
    assert sum(fs.history(f"{place}/big", since=second, until=third).to_arrow()["grown"].to_pylist()) == 10 + 1000
    batches = fs.history(f"{place}/big", since=first, until=second).to_batches()  # noqa: F841
    paths = duckdb.sql("select distinct path from batches where grown > 1e12 order by path").fetchall()
    assert paths == [(f"{place}/big/hole",), (f"{place}/big/shrunk",)]
    names = fs.at(second).names(f"{place}/big")  # noqa: F841
    assert duckdb.sql("select count(*), sum(size)::bigint from names").fetchall() == [(4, 2 * TB + 8 + 40)]
    assert fs.diff(first, second, f"{place}/big").to_pandas().grown.sum() == 2 * TB + 8 - 60
    assert fs.diff(first, second, f"{place}/big").to_pandas().change.tolist() == ["added", "modified", "added", "added"]


def test_universal_pathlib_walks_and_reads(url, fs, place):
    path = upath.UPath(f"{url}/dir") / "f.txt"
    path.parent.mkdir()
    path.write_text("then")
    then = fs.now()
    path.write_text("now")
    assert [one.name for one in path.parent.iterdir()] == ["f.txt"]
    assert upath.UPath(f"{url}/dir/f.txt", at=str(then)).read_text() == "then"
    assert path.stat().st_size == 3
