"""Where the gradients of local steps are taken: not always at the parameters that they change."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax.protocols.base import LocalWork


class GradientPoints(NamedTuple):
    """The parameters, besides the present local ones, at which the gradient of a step can be taken.

    Attributes:
      version_params: the parameters that were read.
      params_before_pull: the local parameters before they were.
      pulls_during_first_step: bool[], whether a pull comes while the first of the steps is under way.
      local_state: `gcjax.engine.local_state.LocalState` of the owner, before the steps.
    """

    version_params: Any
    params_before_pull: Any
    pulls_during_first_step: jax.Array
    local_state: Any

    def params_of_step_gradient(self, local: LocalWork, step: jax.Array, params: Any) -> Any:
        """The parameters at which the gradient of a step is taken, given the local parameters before it, `params`.

        `step`: int32[], counted from 0 in the contribution.
        """
        if local.gradients_at_version:
            return self.version_params
        if local.overlaps_pull:  # the first gradient after a pull was begun before it
            begun_before_pull = self.pulls_during_first_step & (step == 0)
            return jax.tree.map(
                lambda old, new: jnp.where(begun_before_pull, old, new), self.params_before_pull, params
            )
        if self.local_state.push_sum_weight is not None:
            factor = 1 / self.local_state.push_sum_weight  # one division instead of one a parameter
            return jax.tree.map(lambda x: factor.astype(x.dtype) * x, params)
        return params
