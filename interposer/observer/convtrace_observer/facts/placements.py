"""The placement of a DTensor among ranks: its global shape, its mesh, and the part that this rank has."""
import sys

from ..base import contents


def text_of(tensor):
    """@return the text of the fact: "shape=(10, 6), mesh=(dp=2, tp=2), at=(1, 1), placements=(Shard(dim=0), Replicate()),
    local=(5, 6), offset=(5, 0)", without the offset if this torch does not compute it; None for any other tensor."""
    if contents.name_of(type(tensor)) != "DTensor":
        return None
    mesh = tensor.device_mesh
    names = mesh.mesh_dim_names or range(mesh.ndim)
    sizes = ", ".join("%s=%d" % (name, mesh.size(number)) for number, name in enumerate(names))
    text = "shape=%r, mesh=(%s), at=%r, placements=%r, local=%r" % (
        tuple(tensor.shape), sizes, tuple(mesh.get_coordinate() or ()), tensor.placements, tuple(tensor._local_tensor.shape))
    offset = _offset(tensor)
    return text if offset is None else "%s, offset=%r" % (text, offset)


def _offset(tensor):
    """@return the global index of the first element of the local part; None if this torch does not compute it."""
    utils = sys.modules.get("torch.distributed.tensor._utils")
    compute = getattr(utils, "compute_local_shape_and_global_offset", None)
    if compute is None:
        return None
    return tuple(compute(tensor.shape, tensor.device_mesh, tensor.placements)[1])
