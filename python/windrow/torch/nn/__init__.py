"""Layers of graph networks with the signatures and parameters of torch_geometric's, and linear layers with N:M weights.

`state_dict`s load both ways. Edges are a tensor `edge_index` of shape (2, E), an `EdgeIndex`, a `torch.sparse_csr`
tensor or a `windrow.torch.Csr` whose rows are targets. What is derived of them, rows in order, self-loops,
normalisation, is kept as long as the tensors and made anew when they were written to.

Two equal edges are an error (`windrow.errors.FormatError`): coalesce them first.
"""

from windrow.torch.nn._gat import GATConv
from windrow.torch.nn._gatv2 import GATv2Conv
from windrow.torch.nn._gcn import GCNConv
from windrow.torch.nn._nm import NmLinear
from windrow.torch.nn._sage import SAGEConv
from windrow.torch.nn._transformer import TransformerConv

__all__ = ["GATConv", "GATv2Conv", "GCNConv", "NmLinear", "SAGEConv", "TransformerConv"]
