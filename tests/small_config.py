"""A comparison that takes a second, for tests of the command line."""

SMALL = """run.experiment = @compare
compare.schemes = {'BSP': @bsp()}
compare.study = @study()
study.task = @linear_regression()
linear_regression.num_chunks = 2
linear_regression.num_examples = 8
linear_regression.num_features = 2
compare.stragglers = @exponential()
study.optimizer = @sgd()
sgd.learning_rate = 0.1
study.num_workers = 2
study.num_units = 4
study.num_seeds = 1
study.metric = 'suboptimality'
study.target = 1.0
"""
