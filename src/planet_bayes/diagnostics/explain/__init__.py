"""An episode as a page: what an agent saw, expected and planned at every step, and how sure it was.

`recording` follows the agent through an episode, `outlook` decodes what it imagined, `latent`
projects and probes its beliefs, `document` collects the figures of a page, `comparison` those of
several agents, and `html` writes them.
"""
