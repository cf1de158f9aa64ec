"""Every token of an episode's row is one that was sampled or observed, whatever the chat template does to text."""

import pytest
from token_identity import TEMPLATES, identity_of


@pytest.mark.parametrize("template", TEMPLATES)
def test_all_tokens_that_are_trained_on_were_sampled_or_observed(template):
    equal, tokens = identity_of(TEMPLATES[template])
    assert equal == tokens > 300
